"""``mode="max-autotune"``: block sizes of generated kernels by measurement instead of by rule.

Every kernel with several candidates is started with each of them on memory of the program's sizes and strides, within a
time budget for the graph; what is not reached keeps the rule's choice. Choices are kept in the cache by kernel text,
card and Triton version, so that a second process measures nothing.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import hashlib
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .. import cuda_driver
from ..errors import TargetError
from ..index import evaluate, product
from ..ir.program import GraphProgram, KernelCall
from ..observe import report
from .triton_kernel import TritonKernel
from .triton_module import launch_config

BUDGET = 30.0  # seconds of measuring a graph
REPEATS = 10
_ELEMENTS_A_THREAD = (2, 64)

Config = dict[str, Any]
Measure = Callable[[TritonKernel, Config], float]


def candidates(kernel: TritonKernel) -> list[Config]:
    """Block sizes worth measuring, the rule's choice first."""
    found = list(kernel.configs)
    first = kernel.configs[0]
    if kernel.form == "pointwise":
        found += _variants(first, {"XBLOCK": (256, 512, 1024, 2048, 4096), "num_warps": (4, 8)})
    elif kernel.form == "persistent":
        found += _variants(first, {"XBLOCK": (1, 2, 4, 8, 16), "num_warps": (1, 2, 4, 8, 16)})
    elif kernel.form == "looped" and first["XBLOCK"] == 1:
        found += _variants(first, {"RBLOCK": (1024, 2048, 4096), "num_warps": (4, 8, 16)})
    elif kernel.form == "looped":
        found += _variants(first, {"XBLOCK": (16, 32, 64, 128), "RBLOCK": (16, 32, 64), "num_warps": (4, 8)})
    elif kernel.form == "tiled":
        found += _variants(first, {"XBLOCK": (32, 64, 128), "YBLOCK": (32, 64), "num_warps": (4, 8)})
    out: list[Config] = []
    for c in found:
        if c not in out and _is_legal(kernel, c):
            out.append(c)
    return out


def _variants(first: Config, values: dict[str, Iterable[int]]) -> list[Config]:
    out = [dict(first)]
    for name, options in values.items():
        out = [{**c, name: v} for c in out for v in options]
    low, high = _ELEMENTS_A_THREAD
    return [c for c in out if low <= _elements(c) // (32 * c["num_warps"]) <= high]


def _elements(c: Config) -> int:
    return c.get("XBLOCK", 1) * c.get("RBLOCK", 1) * c.get("YBLOCK", 1)


def _is_legal(kernel: TritonKernel, c: Config) -> bool:
    """False for blocks that do not divide a size whose masks the kernel's text leaves out: it does so where all of the
    rule's blocks divide it."""
    sizes: list[tuple[str, Any]] = [(block, size) for size, block in kernel.launches[0].grid if block]
    sizes += [("RBLOCK", product(v.size for v in p.loops)) for p in kernel.spec.phases if p.loops]
    for name, size in sizes:
        if name not in c or not getattr(size, "is_const", False):
            continue
        n = int(size)
        masked = any(n % k[name] for k in kernel.configs if name in k)
        if not masked and n % c[name]:
            return False
    return True


class Choices:
    """Measured choices by kernel, kept as one small file each."""

    def __init__(self, folder: pathlib.Path, stamp: str) -> None:
        self.folder = folder
        self.stamp = stamp

    def _path(self, kernel: TritonKernel) -> pathlib.Path:
        name = hashlib.sha256(f"{self.stamp}\n{kernel.configs}\n{kernel.source}".encode()).hexdigest()[:32]
        return self.folder / f"{name}.tuned.json"

    def read(self, kernel: TritonKernel) -> Config | None:
        """The choice of an earlier measurement, or None."""
        try:
            found = json.loads(self._path(kernel).read_text())
        except (OSError, ValueError):
            return None
        return found if found in candidates(kernel) else None

    def write(self, kernel: TritonKernel, config: Config) -> None:
        """Keep a choice; a cache that cannot be written only costs time."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd, part = tempfile.mkstemp(dir=self.folder, suffix=".part")
            with os.fdopen(fd, "w") as f:
                json.dump(config, f)
            os.replace(part, self._path(kernel))
        except OSError:
            pass


def choose(
    kernels: dict[str, TritonKernel], measure: Measure, choices: Choices, budget: float = BUDGET
) -> dict[str, Config]:
    """Kernel key -> the fastest candidate. `measure` gives seconds (TargetError: that candidate cannot run)."""
    out: dict[str, Config] = {}
    waiting: list[tuple[str, TritonKernel, list[Config]]] = []
    for key, kernel in kernels.items():
        tried = candidates(kernel)
        kept = choices.read(kernel)
        if kept is not None:
            out[key] = kept
        elif len(tried) > 1 and not kernel.spec.sizes:
            waiting.append((key, kernel, tried))
    end = time.monotonic() + budget
    for number, (key, kernel, tried) in enumerate(waiting):
        if time.monotonic() > end:
            report("autotune", f"stopped after {budget:.0f} s: {len(waiting) - number} kernels keep the rule's blocks")
            break
        report("autotune", f"measuring kernel {number + 1} of {len(waiting)}")
        best: tuple[float, Config] | None = None
        prepare = getattr(measure, "prepare", None)
        if prepare is not None:
            prepare(kernel, tried)
        for c in tried:
            try:
                seconds = measure(kernel, c)
            except TargetError:
                continue
            if best is None or seconds < 0.98 * best[0]:  # the rule's choice stays unless another is clearly faster
                best = seconds, c
            if time.monotonic() > end:
                break
        if best is not None:
            out[key] = best[1]
            choices.write(kernel, best[1])
    return out


def device_seconds(run: Callable[[], object]) -> float:
    """Seconds that the device needs for what `run` starts on the current stream. Launches that take the processor
    longer than the device are timed from a recording."""
    run()
    torch.cuda.synchronize()
    once = _event_seconds(run, 2)
    if once > 3e-4:
        return _event_seconds(run, REPEATS)
    count = 20
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    graph.replay()
    return _event_seconds(graph.replay, REPEATS) / count


def _event_seconds(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        run()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) / 1e3)
    return statistics.median(times)


class DeviceMeasure:
    """Seconds of one kernel call on a CUDA device, on buffers like the program's."""

    def __init__(
        self,
        program: GraphProgram,
        device: int,
        compile_launch: Callable[[TritonKernel, int, Config], Any],
    ) -> None:
        self.program = program
        self.device = torch.device("cuda", device)
        self.compile_launch = compile_launch
        self._kernel: TritonKernel | None = None
        self._named: dict[str, torch.Tensor] = {}

    def __call__(self, kernel: TritonKernel, config: Config) -> float:
        from .triton import grid_of

        if kernel is not self._kernel:
            self._named = self._buffers(kernel)
            self._kernel = kernel
        starts: list[tuple] = []
        for position, launch in enumerate(kernel.launches):
            binary = self.compile_launch(kernel, position, config)
            cubin = cuda_driver.Cubin(binary.image)
            function = cubin.function(binary.name, binary.shared)
            values = [ctypes.c_void_p(self._named[p.name].data_ptr()) for p in launch.params]
            values += [ctypes.c_void_p(None)] * (binary.parameters - len(values))
            grid = grid_of(launch, launch_config(kernel, position, config), {})
            starts.append((cubin, function, grid, binary.warps * 32, binary.shared, values))

        def run() -> None:
            stream = torch.cuda.current_stream(self.device).cuda_stream
            for _, function, grid, threads, shared, values in starts:
                cuda_driver.launch(function, grid, threads, shared, stream, values)

        return device_seconds(run)

    def prepare(self, kernel: TritonKernel, configs: list[Config]) -> None:
        """Compile all launches of all `configs` side by side, into the cache that `compile_launch` reads from."""

        def build(job: tuple[int, Config]) -> None:
            try:
                self.compile_launch(kernel, *job)
            except TargetError:
                pass  # measuring it will say so again

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(build, [(k, c) for c in configs for k in range(len(kernel.launches))]))

    def _buffers(self, kernel: TritonKernel) -> dict[str, torch.Tensor]:
        call = next(
            s for s in self.program.steps if isinstance(s, KernelCall) and s.kernel.key() == kernel.program_key
        )
        named: dict[str, torch.Tensor] = {}
        source = torch.Generator(self.device).manual_seed(0)  # the program's own random numbers stay what they are
        for name, parameter in zip(call.args, kernel.spec.arguments, strict=True):
            layout = self.program.buffers[name].layout
            numel = int(evaluate(layout.offset + layout.span, {}))
            t = torch.zeros(max(numel, 1), dtype=layout.dtype, device=self.device)
            if layout.dtype.is_floating_point and layout.dtype.itemsize > 1:
                t.normal_(generator=source)
            named[parameter.name] = t
        for w in kernel.workspaces:
            named[w.name] = torch.zeros(int(evaluate(w.rows, {})), dtype=w.dtype, device=self.device)
        return named


__all__ = ["BUDGET", "Choices", "DeviceMeasure", "candidates", "choose", "device_seconds"]
