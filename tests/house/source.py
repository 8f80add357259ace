"""The source as the house rules see it: each file with its name, its room and its syntax tree."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "holdfast"


@dataclass(frozen=True)
class Module:
    """One Python file of the package, its path counted from the package's folder."""

    path: str
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Its dotted name: `holdfast.core.job`, and `holdfast.core` for `core/__init__.py`."""
        parts = Path(self.path).with_suffix("").parts
        return ".".join(("holdfast", *(part for part in parts if part != "__init__")))

    @property
    def package(self) -> str:
        """What its relative imports count from."""
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]

    @property
    def room(self) -> str:
        """The first folder on its path, or its own name where it stands beside the rooms."""
        return Path(self.path).with_suffix("").parts[0]


@dataclass(frozen=True)
class Import:
    """One imported module, and whether a function does it rather than the file."""

    target: str
    line: int
    lazy: bool


def modules(package: Path) -> list[Module]:
    """Every Python file below a package's folder, in the order of their paths."""
    return _ours() if package == PACKAGE else _parsed(package)


@cache
def _ours() -> list[Module]:
    """Our own files, parsed once for all rules: nothing changes them while tests run."""
    return _parsed(PACKAGE)


def _parsed(package: Path) -> list[Module]:
    found = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text("utf-8")
        found.append(Module(path.relative_to(package).as_posix(), text, ast.parse(text)))
    return found


@cache
def imports(module: Module, *, known: frozenset[str]) -> tuple[Import, ...]:
    """All that a file imports: at its top, in functions, for types only, or by `import_module("…")`.

    `from a import b` is an import of `a.b` where that is a module of ours (`known`), else of `a`.
    """
    return tuple(
        Import(target, node.lineno, lazy)
        for node, lazy in _importing(module)
        for target in _targets(node, module, known)
    )


@cache
def _importing(module: Module) -> list[tuple[ast.stmt | ast.expr, bool]]:
    """What may import: each rule asks for the imports of all files, with other names that are known."""
    kinds = ast.Import | ast.ImportFrom | ast.Call
    return [(node, lazy) for node, lazy in _walk(module.tree, lazy=False) if isinstance(node, kinds)]


def names(found: list[Module]) -> frozenset[str]:
    """The dotted names of all modules, and of the folders that they are in."""
    known = frozenset(module.name for module in found)
    return known | {name.rpartition(".")[0] for name in known} | {"holdfast"}


def plant(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files into a folder, for the tests of the tests."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    return folder


def _walk(node: ast.AST, *, lazy: bool) -> Iterator[tuple[ast.stmt | ast.expr, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.expr):
            yield child, lazy
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _walk(child, lazy=lazy or inside)


def _targets(node: ast.AST, module: Module, known: frozenset[str]) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            base = _absolute("." * node.level + (node.module or ""), module.package)
            full = [f"{base}.{alias.name}" for alias in node.names]
            return list(dict.fromkeys(name if name in known else base for name in full))
        case ast.Call(
            func=ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(str(name)), *_],
        ):
            return [_absolute(name, module.package)]
    return []


def _absolute(name: str, package: str) -> str:
    bare = name.lstrip(".")
    up = len(name) - len(bare)
    if not up:
        return bare
    base = package.split(".")[: len(package.split(".")) - (up - 1)]
    return ".".join([*base, bare] if bare else base)
