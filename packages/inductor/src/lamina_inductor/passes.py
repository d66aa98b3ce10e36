"""Passes that may be left out: they decide how a graph is computed and never what.

A fault that is gone without one of them lies in it or comes to light through it; that is how `lamina.bisect` names a
pass. A pass asks `is_on` before it starts:

>>> with without("fusion"):
...     compile_graph(gm)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PASSES = {
    "pad_matmul": "products of half precision padded to aligned rows (pad_matmul.py)",
    "layout": "images kept channels-last between convolutions (layout_pass.py)",
    "library": "prims left to ATen's kernel where that is the faster one (lowering/left_to_library.py)",
    "attention": "attention that is written out as one kernel (attention_pass.py)",
    "products": "small matrix products as loops (lowering/products.py)",
    "linear": "matrix products by oneDNN's linear layer (lowering/matmul.py)",
    "accumulate": "matrix products added to a sum where it lies (lowering/accumulate.py)",
    "fusion": "loops merged into common kernels (scheduler/fusion.py)",
    "in_place": "results written over operands that nobody reads again (scheduler/in_place.py)",
    "memory": "buffers of the arena and memory of dead buffers used again (scheduler/memory.py)",
    "rewrites": "rewrites of a kernel that only pay in C++ (codegen/cpp_rewrites.py)",
    "vectors": "vector registers instead of one element at a time (codegen/cpp_kernel.py)",
}
"""Name -> what the pass does, in the order in which they run."""

_off: ContextVar[frozenset[str]] = ContextVar("lamina_inductor_passes_off", default=frozenset())


def is_on(name: str) -> bool:
    """Tell whether a pass of `PASSES` may run here."""
    return name not in _off.get()


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Leave passes out of what is compiled inside a with-block; KeyError for a name that is not in `PASSES`."""
    for name in names:
        PASSES[name]
    token = _off.set(_off.get() | {*names})
    try:
        yield
    finally:
        _off.reset(token)


__all__ = ["PASSES", "is_on", "without"]
