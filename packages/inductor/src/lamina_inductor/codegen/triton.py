"""The Triton target: kernels compiled ahead to machine code, launched through the driver from the one native function
of the graph.

Without a GPU, with ``TRITON_INTERPRET=1``, the same kernels run in Triton's interpreter on CPU tensors (for tests).
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from .. import build_cache, toolchain
from ..errors import TargetUnavailable
from ..index import Expr, evaluate
from ..ir.program import GraphProgram
from . import triton_ops
from .kernel import KernelSpec
from .reference import ReferenceProgram
from .triton_kernel import CannotGenerate, Launch, TritonKernel, generate


def triton_version() -> str | None:
    """Version of the installed Triton, or None."""
    try:
        import triton
    except ImportError:
        return None
    return triton.__version__


def is_interpreting() -> bool:
    """True if Triton runs kernels in its interpreter in this process."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


def _let_interpreter_count() -> None:
    """Triton up to 3.6 turns a loop bound into a Python integer by ``int`` of an array with one element in one
    dimension, which NumPy refuses since 2.5."""
    from triton.runtime import interpreter

    patch = getattr(interpreter, "_patch_lang_tensor", None)
    if patch is None or getattr(patch, "counts", False):
        return

    def patched(tensor: Any, scope: Any = None) -> None:
        if scope is None:
            patch(tensor)
            tensor.__index__ = lambda self: int(self.handle.data.item())
        else:
            patch(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    patched.counts = True  # type: ignore[attr-defined]
    interpreter._patch_lang_tensor = patched


class TritonTarget:
    """Target for CUDA graphs. See `lamina_inductor.codegen.target.Target`."""

    name = "triton"

    def unavailable(self) -> str | None:
        """None, or why Triton cannot be used here."""
        if triton_version() is None:
            return "Triton is not installed"
        if is_interpreting():
            return None
        if not torch.cuda.is_available():
            return "no CUDA device (set TRITON_INTERPRET=1 to run kernels in the interpreter)"
        try:
            toolchain.find_compiler()
        except TargetUnavailable as e:
            return e.message
        return None

    def can_lower(self, op: str, dtype: torch.dtype) -> str | None:
        """None, or why an op cannot be generated in that dtype."""
        return triton_ops.reason_against(op, dtype)

    def can_generate(self, spec: KernelSpec) -> str | None:
        """None, or why a whole kernel cannot be written in Triton."""
        try:
            generate(spec)
        except CannotGenerate as e:
            return e.message
        return None

    def prepare(self, gm: torch.fx.GraphModule, config: Any) -> None:
        """Called before lowering: lets the processes that compile kernels start meanwhile, for graphs that this cache
        has not seen."""
        if is_interpreting():
            return
        from . import triton_pool

        mark = cache_folder(config) / f"{hashlib.sha256(gm.code.encode()).hexdigest()[:32]}.seen"
        if mark.exists():
            return
        from .triton_native import capability

        device = torch.device("cuda", torch.cuda.current_device())
        triton_pool.start(getattr(config, "compile_jobs", 0), capability(device))
        with contextlib.suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            mark.touch()

    def build(self, program: GraphProgram, config: Any) -> Any:
        """Generates, compiles and loads the program."""
        return self.begin(program, config)()

    def begin(self, program: GraphProgram, config: Any) -> Callable[[], Any]:
        """`build` in two steps: compilers run from now on; the function returned waits for them and loads the
        program."""
        kernels: dict[str, TritonKernel] = {}
        for spec in program.kernels:
            if spec.key() not in kernels:
                # named by content: other graphs with this kernel find it compiled
                name = f"k{hashlib.sha256(spec.key().encode()).hexdigest()[:12]}"
                kernels[spec.key()] = generate(_renamed(spec, name))
        if is_interpreting():
            return lambda: InterpretedProgram(program, kernels, config)
        from .triton_native import begin_native

        return begin_native(program, kernels, config)


def _renamed(spec: KernelSpec, name: str) -> KernelSpec:
    return replace(spec, name=name)


def cache_folder(config: Any) -> pathlib.Path:
    """Where generated Triton modules are kept."""
    try:
        root = pathlib.Path(build_cache.shared_cache(getattr(config, "cache_dir", "")).root)
    except OSError:
        root = pathlib.Path(tempfile.mkdtemp(prefix="lamina-triton-"))
    return root / "triton"


def grid_of(launch: Launch, config: dict[str, int], sizes: dict[str, int]) -> tuple[int, ...]:
    """Programs along each grid dimension; a second dimension over 65535 spills into the third."""
    grid = []
    for size, block in launch.grid:
        n = int(evaluate(size, sizes)) if isinstance(size, Expr) else int(size)
        grid.append(-(-n // config[block]) if block else n)
    if len(grid) == 2 and grid[1] > 65535:
        grid = [grid[0], 65535, -(-grid[1] // 65535)]
    return tuple(grid) or (1,)


class InterpretedProgram(ReferenceProgram):
    """Runs a program with Triton's own launcher: in the interpreter, on CPU tensors."""

    def __init__(self, program: GraphProgram, kernels: dict[str, TritonKernel], config: Any) -> None:
        from .triton_module import load_module, module_text

        super().__init__(program)
        _let_interpreter_count()
        self.source = module_text(list(kernels.values()))
        self._kernels = kernels
        self._module = load_module(self.source, cache_folder(config))

    def run_kernel(self, spec: KernelSpec, buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        """Starts the launches of one kernel."""
        kernel = self._kernels[spec.key()]
        run_launches(self._module, kernel, kernel.configs[0], buffers, sizes)


def run_launches(
    module: Any, kernel: TritonKernel, config: dict, buffers: Sequence[torch.Tensor], sizes: Sequence[int]
) -> None:
    """Start every launch of `kernel` with Triton's launcher."""
    from .triton_module import launch_config

    spec = kernel.spec
    values = dict(zip(spec.sizes, sizes))
    if any(int(evaluate(v.size, values)) == 0 for v in spec.loops):
        return
    named = {b.name: t.view(torch.uint8) if b.dtype in triton_ops.BYTES else t for b, t in zip(spec.arguments, buffers)}
    device = buffers[0].device if buffers else "cpu"
    for w in kernel.workspaces:
        named[w.name] = torch.empty(int(evaluate(w.rows, values)), dtype=w.dtype, device=device)
    for position, launch in enumerate(kernel.launches):
        c = launch_config(kernel, position, config)
        args = [values[p.name] if p.kind == "size" else named[p.name] for p in launch.params]
        options = {} if is_interpreting() else {"num_warps": c.get("num_warps", 4)}
        getattr(module, launch.name)[grid_of(launch, c, values)](
            *args, **{n: c[n] for n in launch.constexprs}, **options
        )
