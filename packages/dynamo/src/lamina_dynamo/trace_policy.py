"""What happens to a callable, by rule: in the graph, inlined, answered at translation, or left to eager.

The rules ask where a callable comes from and how it is implemented, not what it is called; the tables hold the few
exceptions.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from ._torch import OTHER_COMPILERS

SKIP_ATTRIBUTE = "_lamina_disable"
"""Set on functions that ``disable`` made: they and what they call run in eager."""

_C_FUNCTION = (
    types.BuiltinFunctionType,
    types.BuiltinMethodType,
    type(torch.ops.aten.add),
    type(torch.ops.aten.add.Tensor),
)

# Python modules of torch whose public functions are made of tensor operations only: they go into the graph whole.
GRAPH_MODULES = frozenset(
    {"torch.nn.functional", "torch.functional", "torch._tensor", "torch.special", "torch.linalg", "torch.fft"}
)

# Python functions of those modules that take callables, keep Python state or only dispatch further: they are inlined.
_INLINED = frozenset({"multi_head_attention_forward", "boolean_dispatch", "fn", "gumbel_softmax"})

# The later stages of this stack and torch's compilers: under a region they run when a backward pass or a nested
# function is compiled, and neither they nor what they call belongs to the program.
COMPILER_MODULES = ("lamina_aot_autograd", "lamina_primtorch", "lamina_inductor", *OTHER_COMPILERS)

# Modules whose Python code is never followed: it inspects frames, talks to the outside, or manages the compiler itself.
_SKIPPED_MODULES = (
    "lamina_dynamo",
    "lamina",
    *COMPILER_MODULES,
    "threading",
    "logging",
    "warnings",
    "traceback",
    "linecache",
    "importlib",
    "_frozen_importlib",
    "weakref",
    "pickle",
    "subprocess",
    "multiprocessing",
    "asyncio",
    "concurrent",
    "tempfile",
    "unittest",
    "pytest",
    "_pytest",
    "pdb",
    "gc",
    "signal",
    "socket",
    "ssl",
    "urllib",
    "json.encoder",
    "torch.utils.hooks",
    "numpy",
    "torch.distributed.nn.functional",
)

# Modules of torch whose functions are followed as part of a caller, and left to eager whole where they break the
# graph: between their kernels there is nothing to capture (an LSTM over packed sequences, packing itself), or they look
# at the autograd node that they made (backward hooks of modules), or set hooks on what autograd saves (checkpoints).
WHOLE_MODULES = frozenset(
    {"torch.nn.modules.rnn", "torch.nn.utils.rnn", "torch.utils.hooks", "torch.utils.checkpoint"}
)

_FOLLOWED_MODULES = frozenset({"lamina_dynamo.translator.polyfills", "lamina_dynamo.variables.polyfills"})


def is_graph_function(fn: Any) -> bool:
    """Is ``fn`` a torch function whose call becomes one graph node?"""
    if isinstance(fn, _C_FUNCTION):
        module = getattr(fn, "__module__", None) or ""
        owner = getattr(fn, "__self__", None)
        if module.startswith("torch") or module.startswith("aten"):
            return True
        if isinstance(owner, type) and owner.__module__.startswith("torch"):
            return True
        return isinstance(owner, types.ModuleType) and owner.__name__.startswith("torch")
    if isinstance(fn, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return getattr(fn, "__objclass__", None) in _TENSOR_BASES
    if isinstance(fn, types.FunctionType):
        return fn.__module__ in GRAPH_MODULES and fn.__name__ not in _INLINED
    return False


_TENSOR_BASES = (torch._C.TensorBase, torch.Tensor)


def is_torch_callable(fn: Any) -> bool:
    """Does ``fn`` belong to torch, so that the table of torch calls answers for it?"""
    return is_graph_function(fn)


_skipped: dict[str, bool] = {}


def is_skipped_module(name: str | None) -> bool:
    """Is Python code of the module ``name`` left to eager?"""
    if name is None:
        return False
    found = _skipped.get(name)
    if found is None:
        found = name not in _FOLLOWED_MODULES and any(
            name == prefix or name.startswith(prefix + ".") for prefix in _SKIPPED_MODULES
        )
        _skipped[name] = found
    return found


# Modules whose functions break the graph for a reason of their own.
_OWN_KINDS = {"torch.utils.hooks": "module_hook", "torch.autograd.forward_ad": "forward_ad"}


def reason_to_skip(fn: Any) -> tuple[str, dict[str, Any]] | None:
    """Why the function tracker ``fn`` is not inlined (kind of break and details), or None."""
    real = getattr(fn, "fn", None)
    code = fn.get_code()
    if real is not None and getattr(real, SKIP_ATTRIBUTE, None):
        return "skipped_callable", {"function": code.co_name}
    module = fn.get_globals().get("__name__")
    if module in _OWN_KINDS:
        return _OWN_KINDS[module], {"function": f"{module}.{code.co_name}"}
    if is_skipped_module(module):
        return "skipped_callable", {"function": f"{module}.{code.co_name}"}
    return None


def original_of_advice(fn: Any) -> Any:
    """The function of torch's optimizers behind a wrapper that keeps another compiler out (it puts them there when it
    is first used in the process), or None."""
    original = getattr(getattr(fn, "fn", None), "_torchdynamo_orig_callable", None)
    return original if (getattr(original, "__module__", None) or "").startswith("torch.optim.") else None


def is_advice_to_others(fn: Any, caller: str | None) -> bool:
    """Does torch's own code (the module ``caller``) ask another compiler to break its graph? Its optimizers do, so that
    their step has a graph without gradients; here grad mode divides a graph."""
    return (
        fn.get_code().co_name == "graph_break"
        and (caller or "").startswith("torch.optim.")
        and (fn.get_globals().get("__name__") or "").startswith(OTHER_COMPILERS)
    )


# -- C functions without tensor arguments
# --------------------------------------------------------------------------------

_QUERY_PREFIXES = (
    "is_",
    "_is_",
    "get_",
    "_get_",
    "are_",
    "_are_",
    "has_",
    "_has_",
    "can_",
    "_len_",
    "result_type",
    "promote_types",
)
OPERATOR_OWNERS = (
    "torch._C._VariableFunctions",
    "torch._C._nn",
    "torch._C._linalg",
    "torch._C._special",
    "torch._C._fft",
    "torch._C._sparse",
    "torch._C._nested",
)


def qualified_name(fn: Any) -> str:
    return f"{getattr(fn, '__module__', None) or 'torch'}.{getattr(fn, '__name__', fn)}"


_allowed: dict[int, tuple[Any, bool]] = {}


def is_allowed_c_function(fn: Any) -> bool:
    """May ``fn`` be run on constants at translation? Operators (factories) and queries of state may, setters may
    not."""
    found = _allowed.get(id(fn))
    if found is None:
        found = _allowed[id(fn)] = (fn, _is_allowed(fn))
    return found[1]


def _is_allowed(fn: Any) -> bool:
    if isinstance(fn, types.FunctionType) or not isinstance(fn, (types.BuiltinFunctionType, types.BuiltinMethodType)):
        return True
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type) and owner.__name__ == "_VariableFunctionsClass":
        return True
    if isinstance(owner, types.ModuleType) and owner.__name__ in OPERATOR_OWNERS:
        return True
    name = fn.__name__
    if getattr(torch._C._VariableFunctions, name, None) is not None and getattr(torch, name, None) is fn:
        return True
    if getattr(torch, name, None) is fn and name in ("tensor", "as_tensor", "arange", "zeros", "ones", "full", "empty"):
        return True
    module = getattr(fn, "__module__", None) or ""
    if module in OPERATOR_OWNERS:
        return True
    return name.startswith(_QUERY_PREFIXES)
