"""``mode="max-autotune"`` on a CPU: how a matrix product is computed.

Four ways: the library's call (``library``: MKL in float32, oneDNN in bfloat16), oneDNN's linear layer (``linear``),
a product of known sizes written into the wrapper (``inline``), and a sum in a loop kernel, which takes in what follows
(``loops``; for few rows). Without measuring, rules by size choose (`lowering.matmul`, `small_gemm`). Here each way is
compiled and timed with the sizes, strides and number of threads at hand; another one than the rules' is taken where it
is faster by more than the noise. The answer is kept in the cache, so that a second process measures nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule

from lamina_primtorch.value import Value

from .. import build_cache, toolchain
from ..__about__ import __version__
from ..observe import report
from .measured import read_answer, write_answer

BUDGET = 60.0  # seconds of measuring products in one process
GAIN = 0.93  # of the time that the rules' way takes: above it the difference may be noise
MOST_ROWS = 8  # of a product that is tried as a loop kernel
MOST_LOOP_WORK = 1 << 27
_COLD_BYTES = 1 << 25  # weights are taken in turn from so many bytes, as in a model they are not in the nearest cache
_COPIES = 16
_ROUNDS = 9
_ROUND_SECONDS = 4e-4

_spent = 0.0


class Problem(NamedTuple):
    """``[m, k] @ [k, n]`` with the strides of both, and the strides of what is added (None: nothing)."""

    dtype: torch.dtype
    m: int
    n: int
    k: int
    a_stride: tuple[int, ...]
    b_stride: tuple[int, ...]
    bias: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def text(self) -> str:
        """What is multiplied, for progress lines and the cache."""
        dtype = str(self.dtype).removeprefix("torch.")
        added = "" if self.bias is None else f" + {'x'.join(map(str, self.bias[0]))}"
        strides = "" if self.bias is None else f" {self.bias[1]}"
        return f"{dtype} {self.m}x{self.k} @ {self.k}x{self.n}{added}, strides {self.a_stride} {self.b_stride}{strides}"


_forced: ContextVar[str | None] = ContextVar("forced_product_form", default=None)


def forced_form() -> str | None:
    """The way that every product takes here; None outside of measuring."""
    return _forced.get()


@contextmanager
def in_form(form: str) -> Iterator[None]:
    """Inside, every product is computed in this way (where it can be)."""
    token = _forced.set(form)
    try:
        yield
    finally:
        _forced.reset(token)


def fastest_form(problem: Problem, forms: list[str], config: Any) -> str:
    """The fastest of `forms`, of which the first is what the rules choose. That one, too, where nothing can be measured
    or the time for measuring is used up."""
    global _spent
    if len(forms) < 2:
        return forms[0]
    stamp = "|".join(
        (__version__, torch.__version__, toolchain.cpu_level(), str(torch.get_num_threads()), problem.text(), *forms)
    )
    folder = build_cache.shared_cache(config.cache_dir).folder() / "measured"
    path = folder / f"{hashlib.sha256(stamp.encode()).hexdigest()[:32]}.json"
    times = read_answer(path)
    if not isinstance(times, dict) or not all(isinstance(times.get(f), float) for f in forms):
        if _spent > BUDGET:
            return forms[0]
        report("autotune", f"measuring product {problem.text()}")
        start = time.monotonic()
        times = measure(problem, forms, config)
        _spent += time.monotonic() - start
        write_answer(path, times)
    best = min(forms, key=lambda f: times[f])
    chosen = best if times[best] < GAIN * times[forms[0]] else forms[0]
    told = ", ".join(f"{f} {times[f] * 1e6:.1f}" for f in forms)
    report("autotune", f"product {problem.text()}: {chosen} (µs: {told})")
    return chosen


def measure(problem: Problem, forms: list[str], config: Any) -> dict[str, float]:
    """Seconds of a call in each form; infinite for one that cannot be compiled."""
    quiet = replace(config, max_autotune=False, dump_dir="", check_inputs=False)
    graph = bare_product(problem)
    tensors = _operands(problem)
    calls: dict[str, Callable[..., Any]] = {}
    with torch.no_grad():
        for form in forms:
            try:
                calls[form] = _compiled(graph, form, quiet)
                calls[form](*tensors[0])
            except Exception as error:  # whatever keeps a way from running leaves the product to the others
                report("autotune", f"{form} cannot be measured: {error}")
                calls.pop(form, None)
        times = dict.fromkeys(forms, float("inf"))
        repeat = {form: _repeats(call, tensors) for form, call in calls.items()}
        for _ in range(_ROUNDS):  # in turn: what slows the machine down slows all
            for form, call in calls.items():
                times[form] = min(times[form], _seconds(call, tensors, repeat[form]))
    return times


def bare_product(p: Problem) -> GraphModule:
    """The graph of nothing but this product."""
    graph = Graph()
    cpu = torch.device("cpu")
    vals = [Value((p.m, p.k), p.a_stride, p.dtype, cpu), Value((p.k, p.n), p.b_stride, p.dtype, cpu)]
    nodes = [graph.placeholder("a"), graph.placeholder("b")]
    aten = torch.ops.aten
    if p.bias is not None:
        vals.append(Value(*p.bias, p.dtype, cpu))
        nodes.append(graph.placeholder("bias"))
        product = graph.call_function(aten.addmm.default, (nodes[2], nodes[0], nodes[1]))
    else:
        product = graph.call_function(aten.mm.default, (nodes[0], nodes[1]))
    for node, val in zip([*nodes, product], [*vals, Value((p.m, p.n), (p.n, 1), p.dtype, cpu)], strict=True):
        node.meta["val"] = val
    graph.output((product,))
    return GraphModule({}, graph)


def _compiled(graph: GraphModule, form: str, config: Any) -> Callable[..., Any]:
    from ..compile import compile_graph

    with in_form(form):
        compiled = compile_graph(graph, config=replace(config, strict=True), target="cpp", name=f"product_{form}")
    return compiled.unboxed


def _operands(p: Problem) -> list[tuple[torch.Tensor, ...]]:
    source = torch.Generator().manual_seed(0)  # the program's own random numbers stay what they are

    def make(shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
        return torch.empty_strided(shape, stride, dtype=p.dtype).normal_(generator=source)

    copies = max(1, min(_COPIES, _COLD_BYTES // max(1, p.k * p.n * p.dtype.itemsize)))
    a = make((p.m, p.k), p.a_stride)
    rest = () if p.bias is None else (make(*p.bias),)
    return [(a, make((p.k, p.n), p.b_stride), *rest) for _ in range(copies)]


def _seconds(call: Callable[..., Any], tensors: list[tuple[torch.Tensor, ...]], repeat: int) -> float:
    n = len(tensors)
    start = time.perf_counter()
    for k in range(repeat):
        call(*tensors[k % n])
    return (time.perf_counter() - start) / repeat


def _repeats(call: Callable[..., Any], tensors: list[tuple[torch.Tensor, ...]]) -> int:
    once = min(_seconds(call, tensors, 2) for _ in range(3))
    return max(1, min(1000, int(_ROUND_SECONDS / max(once, 1e-7))))


__all__ = [
    "MOST_LOOP_WORK", "MOST_ROWS", "Problem", "bare_product", "fastest_form", "forced_form", "in_form", "measure",
]  # fmt: skip
