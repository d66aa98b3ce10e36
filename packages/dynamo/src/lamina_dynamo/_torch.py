"""Every private torch name of this package, one line each saying what it is for."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

# Attributes and methods of a tensor subclass are read without its __torch_function__.
plain_tensor_access = torch._C.DisableTorchFunctionSubclass
# Names of the dicts of hooks that nn.Module.__call__ looks at.
MODULE_HOOK_DICTS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def dispatch_keys(tensor: torch.Tensor) -> int:
    """The tensor's dispatch key set as bits: layout, conjugate and negative views, inference, functorch wrappers."""
    return torch._C._dispatch_keys(tensor).raw_repr()


def has_no_plain_sizes(tensor: torch.Tensor) -> bool:
    """Nested tensors and the like: their sizes are not a tuple of ints."""
    return bool(tensor.is_nested)


def storage_and_start(tensor: torch.Tensor) -> tuple[int, int]:
    """Identity of the storage (0: none) and the address of the first element, in bytes."""
    with plain_tensor_access():
        try:
            storage = tensor.untyped_storage()
            return storage._cdata, storage.data_ptr() + tensor.storage_offset() * tensor.element_size()
        except (RuntimeError, NotImplementedError):
            return 0, 0


def global_state() -> dict[str, Any]:
    """What results depend on besides arguments, by name."""
    state: dict[str, Any] = {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        # Dispatch keys that this thread adds or removes: functional transforms, dispatch modes, autocast on or off per device.
        "dispatch includes": torch._C._dispatch_tls_local_include_set().raw_repr(),
        "dispatch excludes": torch._C._dispatch_tls_local_exclude_set().raw_repr(),
        # Torch function modes (the default device is one of them).
        "torch function modes": function_modes(),
        "torch function": torch._C._is_torch_function_enabled(),
    }
    for device in ("cpu", "cuda"):
        on = torch.is_autocast_enabled(device)
        state[f"autocast {device}"] = (on, torch.get_autocast_dtype(device) if on else None)
    state["autocast cache"] = torch.is_autocast_cache_enabled()
    return state


def function_modes() -> tuple[int, ...]:
    """Identity of the active torch function modes, outermost first."""
    return tuple(id(torch._C._get_function_stack_at(i)) for i in range(torch._C._len_torch_function_stack()))


def dispatch_modes() -> int:
    """Number of active torch dispatch modes (under one, frames are left alone)."""
    return torch._C._len_torch_dispatch_stack()


@contextlib.contextmanager
def no_torch_function() -> Any:
    """Neither subclasses nor modes see torch functions."""
    with torch._C.DisableTorchFunction():
        yield
