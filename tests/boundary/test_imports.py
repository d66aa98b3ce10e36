"""Who may import whom: read from the source of every package, imports hidden in functions and strings included."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = {
    "lamina_dynamo": set(),
    "lamina_aot_autograd": set(),
    "lamina_primtorch": set(),
    "lamina_inductor": {"lamina_primtorch"},
    "lamina": {"lamina_dynamo", "lamina_aot_autograd", "lamina_primtorch", "lamina_inductor"},
}
# What this project builds anew, so that no package may import torch's own.
NEVER = [
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch.aot_autograd",
    "torch._functorch._aot_autograd",
    "torch._functorch.partitioners",
    "torch._functorch.compilers",
    "torch._functorch.compile_utils",
    "torch._functorch.eager_transforms.make_fx",
    "torch._functorch.fx_minifier",
    "torch._functorch.config",
    "torch._prims",
    "torch._prims_common",
    "torch._refs",
    "torch._decomp",
    "torch.fx.experimental.proxy_tensor",
    "torch.compile",
    "torch.compiler",
    "torch.export",
    "torch._export",
    "torch._C._dynamo",
    "functorch.compile",
]
MAY_NAME_THEM = {"lamina/interop.py"}
SOURCES = sorted(ROOT.glob("packages/*/src/**/*.py"))
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def key(path: pathlib.Path) -> str:
    return str(path.relative_to(next(p for p in path.parents if p.name == "src")))


def docstrings(tree: ast.AST) -> set[int]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.add(id(first.value))
    return found


def dotted(node: ast.AST) -> str | None:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def names(path: pathlib.Path) -> set[str]:
    """Every module that a file names: import statements, attribute chains, and strings that look like one."""
    tree = ast.parse(path.read_text(), str(path))
    skip = docstrings(tree)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
        elif isinstance(node, ast.Attribute):
            name = dotted(node)
            if name:
                found.add(name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skip:
            if _DOTTED.fullmatch(node.value.strip()):
                found.add(node.value.strip())
    return found


def is_inside(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


# A name that is compared with what the program uses and never called; each use is listed with its reason.
READ_ONLY_STRINGS: dict[str, set[str]] = {
    # A program may ask torch whether it is being compiled; capture recognises these functions and answers.
    "lamina_dynamo/variables/torch_api.py": {
        "torch.compiler",
        "torch.compiler.is_compiling",
        "torch.compiler.is_dynamo_compiling",
        "torch.compiler.is_exporting",
    },
    # An optimizer that torch wrapped calls `graph_break` of this module, which is recognised by its name.
    "lamina_dynamo/trace_policy.py": {"torch._dynamo.decorators"},
}


@pytest.mark.parametrize("path", SOURCES, ids=key)
def test_no_file_imports_what_this_project_builds(path):
    if key(path) in MAY_NAME_THEM:
        return
    allowed = READ_ONLY_STRINGS.get(key(path), set())
    bad = sorted(n for n in names(path) - allowed if any(is_inside(n, m) for m in NEVER))
    assert not bad, f"{key(path)} names {bad}"


@pytest.mark.parametrize("path", SOURCES, ids=key)
def test_no_file_imports_an_undeclared_sibling(path):
    own = key(path).split("/")[0]
    forbidden = set(PACKAGES) - PACKAGES[own] - {own}
    if own == "lamina":
        return
    tree = ast.parse(path.read_text(), str(path))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imported.add(node.module.split(".")[0])
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            callee = dotted(node.func) or ""
            if callee.split(".")[-1] in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                imported.add(node.args[0].value.split(".")[0])
    assert not imported & forbidden, f"{key(path)} imports {sorted(imported & forbidden)}"


def test_environment_variables_are_read_in_config_only():
    bad = []
    for path in SOURCES:
        if path.name in ("config.py",):
            continue
        if any(is_inside(n, "os.environ") or n == "os.getenv" for n in names(path)):
            bad.append(key(path))
    assert not bad, f"os.environ outside config.py: {bad}"


ALLOWED_PRIVATE = {
    "torch._ops",  # OpOverload has no public name
    "torch._subclasses.fake_tensor",
    "torch.utils._python_dispatch",
    "torch.utils._pytree",
}
"""Named as allowed everywhere in docs/contracts.md, section 2."""


def test_private_torch_names_are_kept_in_one_file():
    """Import statements of private torch modules appear only in a package's `_torch.py` (or in interop)."""
    bad = []
    for path in SOURCES:
        if path.name == "_torch.py" or key(path) in MAY_NAME_THEM:
            continue
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                parts = node.module.split(".")
                if parts[0] == "torch" and any(p.startswith("_") for p in parts) and node.module not in ALLOWED_PRIVATE:
                    bad.append(f"{key(path)}:{node.lineno} {node.module}")
    assert not bad, bad


def test_import_linter_contracts_hold():
    import_linter = pytest.importorskip("importlinter.api", reason="import-linter is installed by the nox sessions")
    from importlinter.application import use_cases
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    assert import_linter and use_cases
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == EXIT_STATUS_SUCCESS
