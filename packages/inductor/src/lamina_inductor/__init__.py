"""Lowers prim graphs to a loop-level IR and generates C++ and Triton."""

from .__about__ import __version__

__all__ = ["CompiledGraph", "__version__", "compile_graph", "list_targets"]


def __getattr__(name: str) -> object:
    if name in ("CompiledGraph", "compile_graph", "list_targets"):
        from . import compile as _compile

        return getattr(_compile, name)
    raise AttributeError(f"module 'lamina_inductor' has no attribute {name!r}")
