"""``mode="max-autotune"``: whether a matrix product is faster as a kernel of ours or as the library's.

Both are timed on the device with the product's sizes and strides; of ours, every tile in the list. The answer is kept
in the cache by card, Triton version and product, so that a second process measures nothing. Our kernel is taken where
it alone is faster: what it saves by taking in the operations behind it comes on top. Its tile is measured again with
these operations (`triton_autotune`).
"""

from __future__ import annotations

import hashlib
import pathlib
import time
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule

from lamina_primtorch.value import Value

from ..errors import TargetError
from ..ir.program import GraphProgram
from ..observe import report
from .measured import read_answer, write_answer
from .triton_kernel import TritonKernel, generate

BUDGET = 60.0  # seconds of measuring products in one process
_spent = 0.0


class Problem(NamedTuple):
    """A product ``[batch, m, k] @ [batch, k, n]`` (without the first dimension for a batch of 0) and its strides."""

    dtype: torch.dtype
    batch: int
    m: int
    n: int
    k: int
    a_stride: tuple[int, ...]
    b_stride: tuple[int, ...]
    device: torch.device

    def text(self) -> str:
        """What is multiplied, for progress lines and the cache."""
        lead = f"{self.batch}x " if self.batch else ""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{dtype} {lead}{self.m}x{self.k} @ {self.k}x{self.n}, strides {self.a_stride} {self.b_stride}"


class Seconds(NamedTuple):
    """Times of one product: our fastest kernel (inf where none runs), and the library's."""

    own: float
    library: float


def is_own_faster(problem: Problem, config: Any) -> bool:
    """The measured answer; False where nothing can be measured or the time for measuring is used up."""
    global _spent
    if problem.device.type != "cuda":
        return False
    from .triton import cache_folder, triton_version

    folder = cache_folder(config)
    stamp = f"{triton_version()} {torch.cuda.get_device_name(problem.device)} {problem.text()}"
    path = folder / f"{hashlib.sha256(stamp.encode()).hexdigest()[:32]}.product.json"
    found = read(path)
    if found is None:
        if _spent > BUDGET:
            return False
        report("autotune", f"measuring product {problem.text()}")
        start = time.monotonic()
        found = measure(problem, folder)
        _spent += time.monotonic() - start
        write_answer(path, list(found))
    return found.own < found.library


def read(path: pathlib.Path) -> Seconds | None:
    """An earlier answer."""
    try:
        own, library = read_answer(path)
        return Seconds(float(own), float(library))
    except (ValueError, TypeError):
        return None


def bare_product(problem: Problem) -> tuple[GraphProgram, dict[str, TritonKernel]]:
    """The program of nothing but this product, as a kernel of ours."""
    from ..config import Config
    from ..graph import GraphLowering
    from ..lowering.products import all_products
    from ..scheduler.plan import schedule

    p = problem
    lead = (p.batch,) if p.batch else ()
    graph = Graph()
    vals = [
        Value((*lead, p.m, p.k), p.a_stride, p.dtype, p.device),
        Value((*lead, p.k, p.n), p.b_stride, p.dtype, p.device),
        Value((*lead, p.m, p.n), ((p.m * p.n,) if p.batch else ()) + (p.n, 1), p.dtype, p.device),
    ]
    nodes = [graph.placeholder("a"), graph.placeholder("b")]
    op = torch.ops.aten.bmm.default if p.batch else torch.ops.aten.mm.default
    nodes.append(graph.call_function(op, tuple(nodes)))
    for node, val in zip(nodes, vals, strict=True):
        node.meta["val"] = val
    graph.output((nodes[2],))
    with all_products():
        lowered = GraphLowering(GraphModule({}, graph), Config()).run()
    program = schedule(lowered, "product").program
    return program, {spec.key(): generate(spec) for spec in program.kernels}


def measure(problem: Problem, folder: pathlib.Path) -> Seconds:
    """Both times. Whatever keeps our kernel from running leaves the product to the library."""
    from . import triton_pool
    from .triton_autotune import DeviceMeasure, candidates, device_seconds
    from .triton_native import launch_compiler

    device = problem.device.index if problem.device.index is not None else torch.cuda.current_device()
    with torch.cuda.device(device), torch.no_grad():
        library = device_seconds(_library_call(problem))
        program, kernels = bare_product(problem)
        kernel = next(iter(kernels.values()), None)
        best = float("inf")
        if kernel is not None and kernel.form == "dot" and len(kernels) == 1:
            clock = DeviceMeasure(program, device, launch_compiler(program, folder, device, triton_pool.start()))
            tried = candidates(kernel)
            clock.prepare(kernel, tried)
            for config in tried:
                try:
                    best = min(best, clock(kernel, config))
                except (TargetError, RuntimeError):
                    continue
    return Seconds(best, library)


def _library_call(p: Problem) -> Any:
    lead = (p.batch,) if p.batch else ()
    source = torch.Generator(p.device).manual_seed(0)  # the program's own random numbers stay what they are

    def operand(shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
        return torch.empty_strided(shape, stride, dtype=p.dtype, device=p.device).normal_(generator=source)

    a, b = operand((*lead, p.m, p.k), p.a_stride), operand((*lead, p.k, p.n), p.b_stride)
    out = torch.empty(*lead, p.m, p.n, dtype=p.dtype, device=p.device)
    op = torch.bmm if p.batch else torch.mm
    return lambda: op(a, b, out=out)


__all__ = ["Problem", "Seconds", "bare_product", "is_own_faster", "measure"]
