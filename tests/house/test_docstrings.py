"""Every module, public class and public function says what it promises."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.source import PACKAGE, Module, modules, plant

Function = ast.FunctionDef | ast.AsyncFunctionDef

# A function under one of these is described where it is first declared.
SAID_ELSEWHERE = {"override", "overload", "setter", "deleter"}


def silent(package: Path) -> list[str]:
    """What should have a docstring and has none, as complaints.

    Left out: private names and what is inside them, dunder methods, functions inside functions, and
    methods that a base class of ours has already described.
    """
    found = modules(package)
    promised = _promises(found)
    complaints = [f"{module.path} says nothing" for module in found if not ast.get_docstring(module.tree)]
    for module in found:
        for name, node in _public(module.tree, promised):
            if not ast.get_docstring(node):
                complaints.append(f"{module.path}:{node.lineno} {name} says nothing")
    return complaints


def _public(
    node: ast.Module | ast.ClassDef, promised: dict[str, set[str]], prefix: str = ""
) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    inherited = _inherited(node, promised) if isinstance(node, ast.ClassDef) else set()
    for child in _statements(node):
        match child:
            case ast.ClassDef() if not child.name.startswith("_"):
                yield prefix + child.name, child
                yield from _public(child, promised, f"{prefix}{child.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                hidden = child.name.startswith("_") or child.name in inherited
                if not hidden and not SAID_ELSEWHERE & set(_decorators(child)):
                    yield prefix + child.name, child


def _statements(node: ast.Module | ast.ClassDef | ast.If | ast.Try) -> Iterator[ast.stmt]:
    # Through `if` and `try`, where one of several definitions is chosen.
    for child in node.body + getattr(node, "orelse", []):
        if isinstance(child, ast.If | ast.Try):
            yield from _statements(child)
        else:
            yield child


def _decorators(function: Function) -> Iterator[str]:
    for decorator in function.decorator_list:
        yield ast.unparse(decorator).rpartition(".")[2]


def _promises(found: list[Module]) -> dict[str, set[str]]:
    """The methods of each class by the class's name, those of its bases with them."""
    classes = [node for module in found for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    promised: dict[str, set[str]] = {node.name: set() for node in classes}
    for _ in range(len(classes)):
        before = sum(map(len, promised.values()))
        for node in classes:
            own = {child.name for child in _statements(node) if isinstance(child, Function)}
            promised[node.name] |= own | _inherited(node, promised)
        if before == sum(map(len, promised.values())):
            break
    return promised


def _inherited(node: ast.ClassDef, promised: dict[str, set[str]]) -> set[str]:
    bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
    return set().union(*(promised.get(base, set()) for base in bases))


def test_everything_public_says_what_it_promises():
    """A reader never has to guess what a name is for."""
    assert silent(PACKAGE) == []


def test_silence_is_found(tmp_path):
    """In modules, classes, functions and methods, also behind an `if`."""
    text = "class A:\n    def f(self): ...\n\nif x:\n    async def g(): ...\nelse:\n    def h(): ..."
    plant(tmp_path, {"core/a.py": text})

    assert silent(tmp_path) == [
        "core/a.py says nothing",
        "core/a.py:1 A says nothing",
        "core/a.py:2 A.f says nothing",
        "core/a.py:5 g says nothing",
        "core/a.py:7 h says nothing",
    ]


def test_what_needs_no_words_is_left_alone(tmp_path):
    """Private, dunder and nested names; overloads, setters, and methods that a base describes."""
    text = '''"""A module."""
def _private(): ...

class _Private:
    def f(self): ...

class Base:
    """A base."""
    def f(self):
        """Promise something."""
        def inner(): ...

    def __len__(self): ...

    @overload
    def g(self): ...

    @f.setter
    def f(self, value): ...
'''
    child = '"""A module."""\nclass Middle(Base):\n    """M."""\n\nclass Child(Middle[int]):\n    """C."""\n'
    plant(tmp_path, {"core/a.py": text, "store/a.py": child + "    def f(self): ...\n"})

    assert silent(tmp_path) == []
