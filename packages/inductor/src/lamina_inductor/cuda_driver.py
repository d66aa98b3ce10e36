"""Load compiled kernels (cubin) into the current CUDA context through the driver, without a CUDA toolkit."""

from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import NamedTuple

import torch

from .errors import TargetError, TargetUnavailable

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED_LIMIT = 49152  # bytes a kernel may use without asking


@functools.cache
def driver() -> ctypes.CDLL:
    """libcuda. Raises TargetUnavailable where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise TargetUnavailable(f"the CUDA driver cannot be loaded: {e}", hint="install an NVIDIA driver") from e


def check(code: int, what: str) -> None:
    """Raise TargetError with the driver's own words if `code` is not success."""
    if code:
        text = ctypes.c_char_p()
        driver().cuGetErrorString(code, ctypes.byref(text))
        raise TargetError(f"{what}: {text.value.decode() if text.value else code}")


def launch(function: int, grid: tuple[int, ...], threads: int, shared: int, stream: int, values: list) -> None:
    """Start a kernel. `grid`: programs along each of up to three dimensions; `values`: its parameters (ctypes)."""
    x, y, z = (*grid, 1, 1)[:3]
    if not x * y * z:
        return
    addresses = [ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values]
    pointers = (ctypes.c_void_p * max(len(values), 1))(*addresses)
    handle = (ctypes.c_void_p(function), x, y, z, threads, 1, 1, shared, ctypes.c_void_p(stream), pointers, None)
    check(driver().cuLaunchKernel(*handle), "starting a kernel")


class ReplayFunctions(NamedTuple):
    """Addresses of what a native replay calls; see ``lamina_replay.h``."""

    launch: int
    current_stream: int
    capturing: int
    copy: int


@functools.cache
def expose_torch_cuda() -> ctypes.CDLL:
    """Makes the shim functions of libtorch_cuda visible to generated code."""
    return ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"), mode=ctypes.RTLD_GLOBAL)


@functools.cache
def replay_functions() -> ReplayFunctions | None:
    """None where this driver or torch lacks one of them."""
    try:
        found = [
            driver().cuGraphLaunch,
            expose_torch_cuda().aoti_torch_get_current_cuda_stream,
            driver().cuStreamIsCapturing,
            driver().cuMemcpyDtoDAsync_v2,
        ]
    except (AttributeError, OSError):
        return None
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in found]
    return ReplayFunctions(*addresses) if all(addresses) else None  # type: ignore[arg-type]


class Cubin:
    """A loaded module; unloaded when the last user is gone. Every kernel function in it is found by name."""

    def __init__(self, image: bytes) -> None:
        self._module = ctypes.c_void_p()
        check(driver().cuModuleLoadData(ctypes.byref(self._module), image), "loading a kernel")

    def function(self, name: str, shared: int) -> int:
        """Address of the CUfunction `name`, allowed to use `shared` bytes of dynamic shared memory."""
        fn = ctypes.c_void_p()
        check(driver().cuModuleGetFunction(ctypes.byref(fn), self._module, name.encode()), f"finding kernel {name}")
        if shared > _STATIC_SHARED_LIMIT:
            check(driver().cuFuncSetAttribute(fn, _MAX_DYNAMIC_SHARED, shared), f"shared memory of kernel {name}")
        assert fn.value is not None
        return fn.value

    def __del__(self) -> None:
        # at interpreter shutdown the driver may be gone already: the process is ending, nothing leaks
        try:
            if self._module:
                driver().cuModuleUnload(self._module)
        except Exception:  # noqa: BLE001
            self._module = None
