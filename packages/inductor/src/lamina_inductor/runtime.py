"""Puts a compiled graph together: loads the native extension, the units of a graph, and makes the callable.

The extension `_native` is built with the package; where it is missing (a source checkout, another Python) it is
compiled on first use into the
build cache.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import build_cache
from .errors import TargetUnavailable


@functools.cache
def native(cache_dir: str = "", cxx: str = "") -> ModuleType:
    """The extension, configured for the running torch. Raises TargetUnavailable when it can be neither found nor
    built."""
    try:
        from . import _native as module  # type: ignore[attr-defined]
    except ImportError:
        module = _build_native(cache_dir, cxx)
    folder = Path(torch.__file__).parent / "lib"
    suffix = "dylib" if sys.platform == "darwin" else "so"
    try:
        module.configure(
            torch.Tensor,
            torch.empty(0),
            str(folder / f"libtorch_cpu.{suffix}"),
            str(folder / f"libtorch_python.{suffix}"),
        )
    except (OSError, ImportError) as e:
        raise TargetUnavailable(f"compiled graphs cannot be called: {e}", hint="report this torch build") from e
    return module


def _build_native(cache_dir: str, cxx: str) -> ModuleType:
    source = (Path(__file__).parent / "_native.c").read_text()
    include = sysconfig.get_path("include")
    version = f"{sys.implementation.cache_tag}-{sysconfig.get_config_var('SOABI')}"
    unit = build_cache.Unit(source, "c", (f"-I{include}",), version)
    cache = build_cache.shared_cache(cache_dir)
    if cache.find(unit.key) is None and not (Path(include) / "Python.h").exists():
        raise TargetUnavailable(
            "the native extension is missing and Python.h is not there to build it",
            hint="install a wheel of lamina-inductor",
        )
    path = cache.build(unit, cxx)
    loader = importlib.machinery.ExtensionFileLoader("lamina_inductor._native", str(path))
    spec = importlib.util.spec_from_file_location("lamina_inductor._native", path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules["lamina_inductor._native"] = module
    return module


def function_address(library: ctypes.CDLL, name: str) -> int:
    """Address of an exported function."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


class NativeGraph:
    """A compiled program: call it with the inputs as positional arguments, or `boxed` with one list, and perhaps a
    second one with the tensors that results are added to (see `CompiledGraph.call_into`). `parts`: what a file of it
    holds (`codegen.cpp_saved.Parts`); None where the target cannot be saved."""

    takes_sinks = True

    def __init__(
        self,
        module: ModuleType,
        run: int,
        *,
        releases_gil: bool,
        input_kinds: str,
        outputs: Sequence[tuple[str, Any]],
        constants: Sequence[torch.Tensor],
        kernels: Sequence[int],
        callbacks: Sequence[Callable | None],
        keep: Any,
        source: str,
        parts: Any = None,
    ) -> None:
        letters = {"tensor": "t", "int": "i", "input": "a", "python": "p"}
        kinds = "".join(letters[k] for k, _ in outputs)
        index = tuple(v if k == "input" else 0 for k, v in outputs)
        objects = tuple(v if k == "python" else None for k, v in outputs)
        common = (input_kinds, kinds, index, objects, tuple(constants), tuple(kernels), tuple(callbacks), keep)
        self.unboxed = module.make(run, False, releases_gil, *common)
        self.boxed = module.make(run, True, releases_gil, *common)
        self.source = source
        self.parts = parts

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return self.unboxed(*inputs)
