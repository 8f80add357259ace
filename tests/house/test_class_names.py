"""A class name means one class in the whole package."""

import ast
from collections import defaultdict

from tests.house.source import PACKAGE, Module, modules, plant


def homes(found: list[Module]) -> dict[str, list[str]]:
    """The files that define a class of each name, private ones apart."""
    names = defaultdict(list)
    for module in found:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                names[node.name].append(module.path)
    return names


def test_class_names_are_unique():
    """A name that is searched for leads to one class."""
    assert {name: paths for name, paths in homes(modules(PACKAGE)).items() if len(paths) > 1} == {}


def test_a_double_is_found(tmp_path):
    """In other folders, and inside functions too; a private class is its module's own."""
    plant(
        tmp_path,
        {"a.py": "class A: ...\nclass _B: ...", "b/c.py": "def f():\n    class A: ...\nclass _B: ..."},
    )

    assert dict(homes(modules(tmp_path))) == {"A": ["a.py", "b/c.py"]}
