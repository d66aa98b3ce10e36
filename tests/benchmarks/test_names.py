"""What a benchmark takes from its neighbours exists, also in those that need a device to run."""

import ast
import importlib
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"
FILES = sorted(str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.py"))


def modules_of(tree: ast.Module, package: str) -> dict:
    """The modules of the benchmarks that a file imports, by the names it gives them."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            source = importlib.import_module("." * node.level + (node.module or ""), package)
            for name in node.names:
                full = f"{source.__name__}.{name.name}"
                if not hasattr(source, name.name):
                    importlib.import_module(full)
                value = getattr(source, name.name)
                if getattr(value, "__name__", "") == full:
                    found[name.asname or name.name] = value
    return found


@pytest.mark.parametrize("file", FILES)
def test_attributes_of_other_benchmarks_exist(file):
    path = FOLDER / file
    tree = ast.parse(path.read_text())
    package = ".".join(["benchmarks", *pathlib.Path(file).parent.parts])
    modules = modules_of(tree, package)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert hasattr(modules[node.value.id], node.attr), f"{file}:{node.lineno}: {ast.unparse(node)}"
