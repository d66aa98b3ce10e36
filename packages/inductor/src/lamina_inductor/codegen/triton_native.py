"""CUDA graphs of kernels as one native function: cubins are loaded by the driver, the wrapper launches them without
Python.

For each kernel the wrapper's text has a function object ``K<n>`` that computes the grid, allocates workspaces from
torch's caching allocator, and calls ``cuLaunchKernel`` on the
current stream. Compiled kernels are kept in the cache by content, so a second process needs neither Triton nor a
compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .. import build_cache
from ..cuda_driver import Cubin, expose_torch_cuda, replay_functions
from ..cuda_graphs import CudaGraphRunner, ShapedRunners, call_seconds
from ..index import Expr
from ..ir.program import GraphProgram, KernelCall
from ..runtime import NativeGraph, function_address, native
from . import triton_pool
from .cpp_index import c_index
from .triton import cache_folder, triton_version
from .triton_ahead import compile_ahead, describe
from .triton_kernel import Launch, TritonKernel
from .triton_module import launch_config, load_module, module_path, module_text, request_for
from .wrapper_cpp import write_wrapper
from .wrapper_externs import dtype_code

_HEAD = r"""
#include "lamina_graph.h"
extern "C" {
int aoti_torch_get_current_cuda_stream(int, void**);
void* dlopen(const char*, int);
void* dlsym(void*, const char*);
}
namespace {
typedef int (*LaunchFn)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
void**);
LaunchFn launch_fn() {
  static LaunchFn fn = (LaunchFn)dlsym(dlopen("libcuda.so.1", 1), "cuLaunchKernel");
  return fn;
}
struct Launch { void* fn; long long threads, shared; };  // filled in when the kernels are loaded
template <class Fn> Fn driver(const char* name) { return (Fn)dlsym(dlopen("libcuda.so.1", 1), name); }
// A thread that has not used the device has no context; one that uses another device has that one's.
int start_elsewhere(int device, void* fn, const unsigned* g, int threads, int shared, void* stream, void** args) {
  void *before = nullptr, *ours = nullptr;
  if (driver<int (*)(void**)>("cuCtxGetCurrent")(&before)) return 1;
  if (driver<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&ours, device)) return 1;
  if (driver<int (*)(void*)>("cuCtxSetCurrent")(ours)) return 1;
  const int code = launch_fn()(fn, g[0], g[1], g[2], (unsigned)threads, 1, 1, (unsigned)shared, stream, args, nullptr);
  if (before) driver<int (*)(void*)>("cuCtxSetCurrent")(before);
  return code;
}
int start(LaminaFrame* f, int device, int slot, i64 gx, i64 gy, i64 gz, void* stream, void** args) {
  if (gx <= 0 || gy <= 0 || gz <= 0) return 0;
  const unsigned g[] = {(unsigned)gx, (unsigned)gy, (unsigned)gz};
  const Launch& l = *(const Launch*)f->kernels[slot];
  int code = launch_fn()(l.fn, g[0], g[1], g[2], (unsigned)l.threads, 1, 1, (unsigned)l.shared, stream, args, nullptr);
  if (code == 201 || code == 400) code = start_elsewhere(device, l.fn, g, (int)l.threads, (int)l.shared, stream, args);
  if (code) f->error_kind = "RuntimeError", f->error_text = "a kernel could not be launched";
  return code;
}
inline i64 blocks(i64 n, i64 b) { return (n + b - 1) / b; }
}
"""


SCRATCH_PARAMETERS = 4  # null pointers offered behind a kernel's own parameters; it takes as many as it has

UNALIGNED = "lamina: an input does not start at a multiple of 16 bytes"


class AlignedGraph:
    """A native graph whose kernels assume that inputs start at multiples of 16 bytes. Where one does not, the call is
    made again with a copy of it: nothing has been changed
    by then, since graphs are functional."""

    def __init__(self, graph: NativeGraph) -> None:
        self.graph = graph
        self.source = graph.source
        self.routes = getattr(graph, "routes", [])

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        try:
            return self.graph.unboxed(*inputs)
        except RuntimeError as e:
            if UNALIGNED not in str(e):
                raise
        return self.graph.unboxed(*map(_aligned, inputs))

    def boxed(self, inputs: list) -> list:
        """Takes the list's items out, so that each is freed after its last use."""
        for k, x in enumerate(inputs):
            if isinstance(x, torch.Tensor) and x.data_ptr() % 16:
                inputs[k] = x.clone()
        return self.graph.boxed(inputs)


def _aligned(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) and x.data_ptr() % 16 else x


@dataclass
class Binary:
    """One compiled launch: machine code and what the driver must know."""

    image: bytes
    name: str
    shared: int
    warps: int
    parameters: int  # how many parameters the code takes; those after ours are scratch pointers that stay null


class LaunchRecord(ctypes.Structure):
    """`Launch` of the wrapper: a loaded kernel, threads a program, bytes of shared memory."""

    _fields_ = [("fn", ctypes.c_void_p), ("threads", ctypes.c_longlong), ("shared", ctypes.c_longlong)]


def capability(device: torch.device) -> int:
    """90 for a card of compute capability 9.0."""
    major, minor = torch.cuda.get_device_capability(device)
    return major * 10 + minor


def _binary_path(
    folder: pathlib.Path, text: str, launch: Launch, config: dict[str, int], arch: int, aligned: set[str]
) -> pathlib.Path:
    blocks = sorted((k, v) for k, v in config.items() if isinstance(v, int))
    stamp = json.dumps([triton_version(), text, launch.name, blocks, arch, sorted(aligned)])
    return folder / f"{hashlib.sha256(stamp.encode()).hexdigest()[:32]}.cubin"


def read_binary(
    folder: pathlib.Path, text: str, launch: Launch, config: dict[str, int], arch: int, aligned: set[str]
) -> Binary | None:
    """What the cache has; None where it is missing or damaged."""
    try:
        head, image = _binary_path(folder, text, launch, config, arch, aligned).read_bytes().split(b"\n", 1)
        meta = json.loads(head)
        if meta["digest"] == hashlib.sha256(image).hexdigest():
            return Binary(image, meta["name"], meta["shared"], meta["warps"], meta["parameters"])
    except (OSError, ValueError, KeyError):
        pass
    return None


def begin_binary(
    folder: pathlib.Path,
    text: str,
    launch: Launch,
    config: dict[str, int],
    arch: int,
    aligned: set[str],
    pool: triton_pool.WorkerPool | None = None,
) -> Callable[[], Binary]:
    """Start to compile one launch in a worker of `pool` (without one it is compiled here and now), unless the cache has
    it. The function returned waits for the result."""
    found = read_binary(folder, text, launch, config, arch, aligned)
    if found is not None:
        return lambda: found
    path = _binary_path(folder, text, launch, config, arch, aligned)
    request = {"id": 0, "path": str(module_path(text, folder)), **request_for(launch, config, arch, aligned)}
    if pool is not None:
        # two graphs that are compiled at the same time may share kernels
        answer = _in_flight.get(path) or _in_flight.setdefault(path, pool.submit(request))
        return lambda: _take_answer(path, answer)
    compiled = compile_ahead(load_module(text, folder), request)
    made = _keep_binary(path, {**describe(compiled), "image": compiled.asm["cubin"]})
    return lambda: made


_in_flight: dict[pathlib.Path, Future] = {}  # answers that nobody has taken yet


def _take_answer(path: pathlib.Path, answer: Future) -> Binary:
    try:
        return _keep_binary(path, answer.result())
    finally:
        _in_flight.pop(path, None)


def compile_binary(
    folder: pathlib.Path,
    text: str,
    launch: Launch,
    config: dict[str, int],
    arch: int,
    aligned: set[str],
    pool: triton_pool.WorkerPool | None = None,
) -> Binary:
    """Compile one launch (in a worker of `pool`, or here), or take it from the cache."""
    return begin_binary(folder, text, launch, config, arch, aligned, pool)()


def _keep_binary(path: pathlib.Path, done: dict[str, Any]) -> Binary:
    """A compiler's answer as a `Binary`, kept in the cache."""
    image = done["image"]
    binary = Binary(image, done["name"], done["shared"], done["warps"], done["parameters"])
    head = json.dumps(
        {
            "digest": hashlib.sha256(image).hexdigest(),
            "name": binary.name,
            "shared": binary.shared,
            "warps": binary.warps,
            "parameters": binary.parameters,
        }
    )
    try:
        fd, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(fd, "wb") as f:
            f.write(head.encode() + b"\n" + image)
        os.replace(part, path)
    except OSError:
        pass  # a cache that cannot be written only costs time
    return binary


def functor_text(
    number: int, kernel: TritonKernel, config: dict[str, Any], first_slot: int, device: int
) -> str:
    """C++ of the function object ``K<number>`` that starts all launches of one kernel."""
    spec = kernel.spec
    names = {s: f"s[{k}]" for k, s in enumerate(spec.sizes)}

    def integer(e: Expr | int) -> str:
        return c_index(e, names)

    lines = [
        f"struct K{number} {{",
        "  LaminaFrame* f;",
        "  int operator()(void* const* b, const i64* s) const {",
        "    using namespace lg; (void)b; (void)s;",
    ]
    lines.append(f"    void* stream = nullptr; aoti_torch_get_current_cuda_stream({device}, &stream);")
    lines.append("    void* none = nullptr; (void)none;")
    if spec.arguments:
        lines.append(f"    if (({' | '.join(f'(unsigned long)b[{k}]' for k in range(len(spec.arguments)))}) & 15) {{")
        lines.append(f'      f->error_kind = "RuntimeError", f->error_text = "{UNALIGNED}"; return 1; }}')
    position = {b.name: k for k, b in enumerate(spec.arguments)}
    for w in kernel.workspaces:
        lines.append(f"    Tensor {w.name}; {{ const i64 z[] = {{{integer(w.rows)}}}, t[] = {{1}};")
        lines.append(
            f"      if (aoti_torch_empty_strided(1, z, t, {dtype_code(w.dtype)}, 1, {device}, &{w.name}.h)) {{"
        )
        lines.append(
            '        f->error_kind = "MemoryError", f->error_text = "a workspace could not be allocated"; return 1; } }'
        )
        lines.append(f"    void* p_{w.name} = data({w.name}.h);")
    for k, launch in enumerate(kernel.launches):
        c = launch_config(kernel, k, config)
        args = []
        for p in launch.params:
            if p.kind == "size":
                args.append(f"(void*)&s[{spec.sizes.index(p.name)}]")
            elif p.kind == "workspace":
                args.append(f"&p_{p.name}")
            else:
                args.append(f"(void*)&b[{position[p.name]}]")
        args += ["&none"] * SCRATCH_PARAMETERS
        grid = [f"blocks({integer(size)}, {c[block]})" if block else integer(size) for size, block in launch.grid] or [
            "1"
        ]
        lines.append(f"    {{ void* args[] = {{{', '.join(args) or '&none'}}};")
        if len(grid) == 2:
            lines.append(f"      const i64 gy = {grid[1]}, gz = blocks(gy, 65535);")
            shape = f"{grid[0]}, gz > 1 ? 65535 : gy, gz"
        elif len(grid) == 3:
            shape = ", ".join(grid)
        else:
            shape = f"{grid[0]}, 1, 1"
        lines.append(f"      if (start(f, {device}, {first_slot + k}, {shape}, stream, args)) return 1; }}")
    lines += ["    return 0;", "  }", "};"]
    return "\n".join(lines) + "\n"


Runnable = AlignedGraph | CudaGraphRunner | ShapedRunners


def build_native(
    program: GraphProgram, kernels: dict[str, TritonKernel], config: Any, chosen: dict[str, dict] | None = None
) -> Runnable:
    """Compile and load `program` for its CUDA device. `chosen`: kernel key -> block sizes, where they were measured."""
    return begin_native(program, kernels, config, chosen)()


def begin_native(
    program: GraphProgram, kernels: dict[str, TritonKernel], config: Any, chosen: dict[str, dict] | None = None
) -> Callable[[], Runnable]:
    """`build_native` in two steps: the compilers are started, and the function returned waits for them and loads what
    they made."""
    device = program.device.index if program.device.index is not None else torch.cuda.current_device()
    arch = capability(torch.device("cuda", device))
    folder = cache_folder(config)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    cache_dir, cxx = getattr(config, "cache_dir", ""), getattr(config, "cxx", "")
    module = native(cache_dir, cxx)  # makes torch's functions visible to the wrapper
    expose_torch_cuda()
    texts = {key: module_text([k]) for key, k in kernels.items()}
    if chosen is None and getattr(config, "max_autotune", False):
        chosen = _measured(program, kernels, folder, arch, device)
    configs = {key: (chosen or {}).get(key, k.configs[0]) for key, k in kernels.items()}
    functors, numbers, slots = [], {}, 0
    for number, (key, k) in enumerate(kernels.items()):
        numbers[key] = number
        functors.append(functor_text(number, k, configs[key], slots, device))
        slots += len(k.launches)

    def kernel_text(call: KernelCall) -> str:
        return f"K{numbers[call.kernel.key()]}{{f}}"

    wrapper = write_wrapper(program, kernel_text)
    source = _HEAD + "\n".join(functors) + wrapper.source
    unit = build_cache.Unit(source, extra=wrapper.flags)
    # the wrapper's compiler runs beside the kernels'
    library_path = triton_pool.run_beside(lambda: build_cache.shared_cache(cache_dir).build(unit, cxx))
    launches = begin_launches(program, kernels, configs, folder, arch, getattr(config, "compile_jobs", 0))

    def finish() -> Runnable:
        binaries = [wait() for wait in launches]
        library = build_cache.load(library_path.result())
        addresses, keep = [], [library]
        with torch.cuda.device(device):
            torch.cuda.current_stream()  # the context must exist before modules are loaded
            for binary in binaries:
                cubin = Cubin(binary.image)
                record = LaunchRecord(cubin.function(binary.name, binary.shared), binary.warps * 32, binary.shared)
                keep += [cubin, record]
                addresses.append(ctypes.addressof(record))
        graph = NativeGraph(
            module,
            function_address(library, "lamina_run"),
            releases_gil=False,
            input_kinds=_input_kinds(program),
            outputs=wrapper.outputs,
            constants=program.constants,
            kernels=addresses,
            callbacks=[wrapper.callbacks.get(k, (None, 0))[0] for k in range(len(program.externs))],
            keep=keep,
            source="\n\n".join([*texts.values(), "# ---- wrapper\n" + source]),
        )
        graph.routes = wrapper.routes  # type: ignore[attr-defined]
        aligned_graph = AlignedGraph(graph)
        if getattr(config, "cudagraphs", False):
            runner = ShapedRunners if program.sizes else CudaGraphRunner
            on = torch.device("cuda", device)
            repeatable = not any(getattr(step, "effect", False) for step in program.steps)
            return runner(
                aligned_graph,
                on,
                driver=replay_functions(),
                count=program.input_count,
                clock=call_seconds if repeatable else None,
            )
        return aligned_graph

    return finish


def _input_kinds(program: GraphProgram) -> str:
    """A letter for each input: a tensor, an integer, or something that no kernel reads."""
    int_inputs = {index for _, index, what, _ in program.sizes if what == "int"}
    tensor_inputs = {d.index for d in program.buffers.values() if d.kind == "input"}
    return "".join("t" if k in tensor_inputs else "i" if k in int_inputs else "?" for k in range(program.input_count))


def begin_launches(
    program: GraphProgram,
    kernels: dict[str, TritonKernel],
    configs: dict[str, dict],
    folder: pathlib.Path,
    arch: int,
    jobs: int = 0,
) -> list[Callable[[], Binary]]:
    """A function for every launch, in order, that waits for its machine code. Workers are only started for several
    launches that the cache does not have; the longest are begun first, so that no worker is left alone at the end."""
    wanted = []
    for key, k in kernels.items():
        text = module_text([k])
        aligned = {p.name for p in k.launches[0].params if p.kind == "workspace"} | aligned_buffers(program, k)
        for position, launch in enumerate(k.launches):
            wanted.append((folder, text, launch, launch_config(k, position, configs[key]), arch, aligned))
    found = [read_binary(*w) for w in wanted]
    waits: list[Callable[[], Binary]] = [partial(_itself, b) for b in found]  # type: ignore[arg-type]
    missing = [k for k, b in enumerate(found) if b is None]
    workers = triton_pool.start(jobs, arch) if len(missing) > 1 or triton_pool.is_running() else None
    for k in sorted(missing, key=lambda k: -len(wanted[k][1])):
        waits[k] = begin_binary(*wanted[k], workers)
    return waits


def _itself(binary: Binary) -> Binary:
    return binary


def compile_launches(
    program: GraphProgram,
    kernels: dict[str, TritonKernel],
    configs: dict[str, dict],
    folder: pathlib.Path,
    arch: int,
    jobs: int = 0,
) -> list[Binary]:
    """Machine code of every launch, in order."""
    return [wait() for wait in begin_launches(program, kernels, configs, folder, arch, jobs)]


def _measured(
    program: GraphProgram, kernels: dict[str, TritonKernel], folder: pathlib.Path, arch: int, device: int
) -> dict[str, dict]:
    """Block sizes by measurement (or from the cache)."""
    from .triton_autotune import Choices, DeviceMeasure, choose

    compile_launch = launch_compiler(program, folder, device, triton_pool.start(0, arch))
    stamp = f"{triton_version()} {torch.cuda.get_device_name(device)} {arch}"
    with torch.cuda.device(device), torch.no_grad():
        return choose(kernels, DeviceMeasure(program, device, compile_launch), Choices(folder, stamp))


def launch_compiler(
    program: GraphProgram, folder: pathlib.Path, device: int, pool: triton_pool.WorkerPool
) -> Callable[[TritonKernel, int, dict[str, Any]], Binary]:
    """A function of (kernel, launch number, block sizes) for `DeviceMeasure`."""
    arch = capability(torch.device("cuda", device))

    def compile_launch(kernel: TritonKernel, position: int, c: dict[str, Any]) -> Binary:
        launch, blocks = kernel.launches[position], launch_config(kernel, position, c)
        aligned = {p.name for p in launch.params if p.kind == "workspace"} | aligned_buffers(program, kernel)
        return compile_binary(folder, module_text([kernel]), launch, blocks, arch, aligned, pool)

    return compile_launch


def aligned_buffers(program: GraphProgram, kernel: TritonKernel) -> set[str]:
    """Parameters of `kernel` that are always multiples of 16 bytes: memory this program allocates, and inputs
    (checked at the start of each call).
    """
    safe = {p.name for p in kernel.launches[0].params if p.kind == "buffer"}
    for step in program.steps:
        if isinstance(step, KernelCall) and step.kernel.key() == kernel.program_key:
            for arg, parameter in zip(step.args, kernel.spec.arguments):
                d = program.buffers[arg]
                offset = d.layout.offset
                if d.kind not in ("input", "constant") and not (
                    offset.is_const and int(offset) * d.layout.itemsize % 16 == 0
                ):
                    safe.discard(parameter.name)
    return safe
