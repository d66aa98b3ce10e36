"""Every private torch name of this package, one line each saying what it is for."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import weakref
from typing import Any

import torch
from torch.autograd import forward_ad

# Attributes and methods of a tensor subclass are read without its __torch_function__.
plain_tensor_access = torch._C.DisableTorchFunctionSubclass
# A copy of a fake has been written to as often as the one it is a copy of.
set_version_counter = torch._C._autograd._unsafe_set_version_counter
# Operators of recurrent layers and of packed sequences.
recurrent_operators = torch._VF
# The process group of a name, where collectives know their group by it.
group_of_name = getattr(getattr(torch._C, "_distributed_c10d", None), "_resolve_process_group", None)
# Names of the dicts of hooks that nn.Module.__call__ looks at.
MODULE_HOOK_DICTS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

# Modules of torch's own compilers, to know their frames by name: they are left alone, with all that they call.
OTHER_COMPILERS = tuple(f"torch.{name}" for name in ("_dynamo", "_inductor", "_functorch"))


def symbolic_decompositions() -> Any:
    """Python kernels, which can do with symbolic sizes, go before the C++ ones of composite ops."""
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()


class quiet_fake_tensors:
    """torch prints the traceback of every op that its fake tensors refuse; the caller tells the user what it means."""

    def __enter__(self) -> None:
        self.log = logging.getLogger("torch._subclasses.fake_tensor")
        self.disabled, self.log.disabled = self.log.disabled, True

    def __exit__(self, *exc: Any) -> None:
        self.log.disabled = self.disabled


def original_of(function: Any) -> Any:
    """The function behind a wrapper that torch's own compiler put around it when it was loaded; None if it is none.

    These wrappers keep that compiler out of the function (``torch.manual_seed``), or tell it about new modules.
    """
    module = function.__globals__.get("__name__")
    if module == "torch._compile":
        return function.__dict__.get("__wrapped__")
    if module == f"{OTHER_COMPILERS[0]}.mutation_guard" and function.__closure__:
        return function.__closure__[0].cell_contents
    return None


def numpy_on_tensors() -> Any:
    """torch's rendering of numpy: its functions on tensors, with numpy's promotion of types."""
    import torch._numpy

    return torch._numpy


def python_of_script(function: Any) -> Any:
    """The Python function that ``torch.jit.script`` compiled into ``function``; None if it has none or was traced."""
    original = getattr(function, "_torchdynamo_inline", None)
    if original is None:
        return None
    scripted = torch.jit._state._try_get_jit_cached_function(original)
    return original if scripted is not None and scripted.qualified_name == function.qualified_name else None


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


FUNCTION_NUMBERS = torch.autograd.function.AUTOGRAD_FUNCTION_COUNTER  # numbers the classes of autograd functions


def in_dual_level() -> bool:
    """Is forward-mode differentiation on? Its tangents are carried by the operators of eager."""
    return forward_ad._current_level >= 0


class saved_tensors_left_alone:
    """Hooks on saved tensors (``saved_tensors_hooks``, checkpoint) see what the program saves, not what translating it
    saves: they are taken off meanwhile.
    """

    def __enter__(self) -> None:
        autograd = torch._C._autograd
        self.taken: list[Any] = []
        while (hooks := autograd._top_saved_tensors_default_hooks(True)) is not None:
            self.taken.append(hooks)
            autograd._pop_saved_tensors_default_hooks()

    def __exit__(self, *exc: object) -> None:
        for hooks in reversed(self.taken):
            torch._C._autograd._push_saved_tensors_default_hooks(*hooks)


def global_state() -> dict[str, Any]:
    """What results depend on besides arguments, by name."""
    state: dict[str, Any] = {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "forward gradient level": forward_ad._current_level,
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        # Dispatch keys that this thread adds or removes: functional transforms, dispatch modes, autocast on or off
        # per device.
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


def is_autograd_context(value: Any) -> bool:
    """The object that a custom autograd function's forward and backward get as their first argument."""
    return issubclass(type(value), torch._C._FunctionBase)


def function_modes() -> tuple[int, ...]:
    """Identity of the active torch function modes, outermost first."""
    return tuple(id(torch._C._get_function_stack_at(i)) for i in range(torch._C._len_torch_function_stack()))


def has_user_modes() -> bool:
    """Is a torch function mode of the program active? (The one of a default device is torch's own.)"""
    n = torch._C._len_torch_function_stack()
    return n > 0 and any(
        not type(torch._C._get_function_stack_at(i)).__module__.startswith("torch.") for i in range(n)
    )


@contextlib.contextmanager
def no_function_modes() -> Any:
    """No torch function mode sees what is called inside; subclasses do."""
    modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    try:
        yield
    finally:
        for mode in reversed(modes):
            torch._C._push_on_torch_function_stack(mode)


def dispatch_modes() -> int:
    """Number of active torch dispatch modes (under one, frames are left alone)."""
    return torch._C._len_torch_dispatch_stack()


@contextlib.contextmanager
def no_torch_function() -> Any:
    """Neither subclasses nor modes see torch functions."""
    with torch._C.DisableTorchFunction():
        yield


# -- fake values and graph state (translator) --------------------------------------------------------------------------
# Fakes take no part in __torch_function__: calls on them go straight to the dispatcher.
disabled_torch_function = torch._C._disabled_torch_function_impl
# Setters of global state, as graph nodes (contract 9.3).
set_grad_enabled = torch._C._set_grad_enabled
enter_autocast = torch.amp.autocast_mode._enter_autocast
exit_autocast = torch.amp.autocast_mode._exit_autocast

# Guard of inference mode, on or off.
inference_mode = torch._C._InferenceMode
# Guards of inference mode that running graphs hold, per thread, outermost first.
_inference = threading.local()


def _enter_inference_mode(mode: bool) -> Any:
    """Graph node: inference mode on or off until the matching ``_exit_inference_mode`` (contract 9.3)."""
    guard = inference_mode(mode)
    guard.__enter__()
    _inference.__dict__.setdefault("guards", []).append(guard)
    return guard


def _exit_inference_mode(guard: Any) -> None:
    _inference.guards.remove(guard)
    guard.__exit__(None, None, None)


enter_inference_mode, exit_inference_mode = _enter_inference_mode, _exit_inference_mode


def open_inference_modes() -> int:
    """Number of inference-mode guards that graphs hold in this thread."""
    return len(_inference.__dict__.get("guards", ()))


def leave_inference_modes(count: int) -> None:
    """Leave those above ``count``, after an exception."""
    while open_inference_modes() > count:
        _exit_inference_mode(_inference.guards[-1])


# The control-flow operator without a public name; captured as a node over two bodies.
_operators = getattr(torch, "_higher_order_ops", None)
while_loop = getattr(getattr(_operators, "while_loop", None), "while_loop", None) or getattr(
    _operators, "while_loop", None
)


def _operator_function(name: str) -> Any:
    """A control-flow operator that older torch keeps in a module of its name."""
    found = getattr(_operators, name, None)
    return getattr(found, name, found)


scan, map_operator = _operator_function("scan"), _operator_function("map")
# Whether scan along another dimension than the first stacks its results along that one (older torch: the first).
scan_moves_results = any(
    "movedim" in getattr(const, "co_names", ()) and "ndim" in const.co_names
    for const in getattr(getattr(scan, "__code__", None), "co_consts", ())
)


def library_folder() -> str:
    """Folder of libtorch_cpu and libc10, whose exported functions the guard program calls."""
    import os

    return os.path.join(os.path.dirname(torch.__file__), "lib")


_DTYPE_CODES: dict[torch.dtype, int] = {}


def dtype_code(dtype: torch.dtype) -> int:
    """Number of a dtype in libtorch (c10::ScalarType)."""
    if not _DTYPE_CODES:
        names = (
            "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool "
            "qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 "
            "bits1x8 bits2x4 bits4x2 bits8 bits16 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz "
            "uint16 uint32 uint64"
        )
        for code, name in enumerate(names.split()):
            if hasattr(torch, name):
                _DTYPE_CODES[getattr(torch, name)] = code
    return _DTYPE_CODES[dtype]


def is_plain_storage(tensor: torch.Tensor) -> bool:
    """Sizes and strides can be read from the TensorImpl: strided, no Python dispatch, no functorch wrapper, not
    nested, dtype with a known code.
    """
    keys = torch._C._dispatch_keys(tensor)
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and not keys.has(torch._C.DispatchKey.Python)
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and tensor.dtype in (_DTYPE_CODES or (dtype_code(torch.uint8), _DTYPE_CODES)[1])
    )


class random_state_kept:
    """Random streams of torch (CPU), Python and numpy are after the block as they were before: compiling draws
    nothing.
    """

    def __enter__(self) -> None:
        import random
        import sys

        self.torch = torch.random.default_generator.get_state()
        self.python = random.getstate()
        numpy = sys.modules.get("numpy.random")
        self.numpy = numpy.get_state() if numpy is not None else None

    def __exit__(self, *exc: object) -> None:
        import random
        import sys

        torch.random.default_generator.set_state(self.torch)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)


def symbol_source(name: str) -> Any:
    """A key for the ShapeEnv: it wants an object of torch's own class of sources, of which it uses the name."""
    return _symbol_class()(name)


@functools.cache
def shape_env_class() -> Any:
    """A ShapeEnv that does not ask where in torch a guard comes from: guards here carry the user's line, and to know
    its own files torch would import its compiler (a second)."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

    from .unknown_sizes import answer_as_large

    class SizeEnv(ShapeEnv):
        # Whether a size that only the run knows may be taken for neither 0 nor 1.
        supposes_large = False
        # Whether such a size was set equal to something, in the hope that the run agrees.
        supposed_equal = False
        # Whether ops may make such sizes for now, whatever the settings say.
        makes_sizes = False

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            # What it warns of (a size that depends on data) is a graph break with a reason here, or nothing at all.
            self.log = logging.getLogger("lamina_dynamo.sizes")
            self.log.setLevel(logging.ERROR)

        @property
        def allow_dynamic_output_shape_ops(self) -> bool:
            return bool(self.makes_sizes or self.settings.allow_dynamic_output_shape_ops)

        def _set_replacement(self, a: Any, *args: Any, **kwargs: Any) -> None:
            self.supposed_equal = self.supposed_equal or str(a).startswith("u")
            super()._set_replacement(a, *args, **kwargs)

        def is_of_sizes(self, expr: Any) -> bool:
            """Whether the numbers in it that only the run knows are sizes: of a value nothing may be supposed."""
            return all(s in self.size_like for s in expr.free_symbols if str(s).startswith(("u", "zuf")))

        def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().evaluate_expr(orig_expr, *args, **kwargs)
            except GuardOnDataDependentSymNode:
                answer = None
                if self.supposes_large and self.is_of_sizes(orig_expr):
                    answer = answer_as_large(orig_expr)
                if answer is None:
                    raise
                return answer

        def _get_stack_summary(self, is_debug: bool = False, framework_loc: str | None = None) -> Any:
            return super()._get_stack_summary(False, framework_loc or "lamina")

    return SizeEnv


def bound_symbol(env: Any, number: Any, low: Any, high: Any) -> None:
    """A number that only the run knows lies between ``low`` and ``high``."""
    from torch.utils._sympy.value_ranges import ValueRanges

    env.var_to_range[number.node.expr] = ValueRanges(low, high)


_symbol_type: Any = None


def _symbol_class() -> Any:
    global _symbol_type
    if _symbol_type is None:
        from torch._guards import Source

        class NamedSource(Source):
            def __init__(self, label: str) -> None:
                object.__setattr__(self, "label", label)

            _is_method = callable(getattr(Source, "name", None))
            name = (lambda self: self.label) if _is_method else property(lambda self: self.label)
            _name_template = property(lambda self: self.label)

            def __hash__(self) -> int:
                return hash(self.label)

            def __eq__(self, other: object) -> bool:
                return self is other or (isinstance(other, NamedSource) and self.label == other.label)

        _symbol_type = NamedSource
    return _symbol_type


def release_source_with(module: Any) -> None:
    """Have the generated source of a GraphModule's forward dropped when the module dies."""
    weakref.finalize(module, _release_source, type(module).forward.__code__.co_filename).atexit = False


def _release_source(filename: str) -> None:
    """Drop the source that torch.fx keeps of every GraphModule's forward for tracebacks: it would stay for ever."""
    import linecache

    from torch.fx import graph_module

    linecache.cache.pop(filename, None)
    cache = getattr(getattr(graph_module, "_loader", None), "eval_cache", None)
    if isinstance(cache, dict):
        cache.pop(filename, None)


_AUTOCAST_DEVICES = ("cpu", "cuda")


def autocast_state() -> tuple[Any, ...]:
    """Autocast settings of this thread, for ``restore_autocast_state``."""
    nesting = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    devices = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _AUTOCAST_DEVICES]
    return nesting, devices, torch.is_autocast_cache_enabled()


def restore_autocast_state(state: tuple[Any, ...]) -> None:
    """Put autocast back after blocks that an exception left."""
    nesting, devices, cache = state
    for device, enabled, dtype in devices:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(cache)
    while torch.autocast_increment_nesting() > nesting:
        torch.autocast_decrement_nesting()
        torch.autocast_decrement_nesting()
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


def make_wrapper(cls: Any, shape: Any, stride: Any, **options: Any) -> Any:
    """A tensor with metadata and no data. Nobody asks how large its storage is: with symbolic sizes that would be
    computed each time (190 us; everything else takes 11)."""
    for n in (*shape, *stride):
        if type(n) is not int:
            options["storage_size"] = 0
            break
    return torch.Tensor._make_wrapper_subclass(cls, shape, strides=stride, **options)


@functools.cache
def _captured_module() -> type[torch.fx.GraphModule]:
    try:
        from torch.fx._lazy_graph_module import _LazyGraphModule
    except ImportError:
        return torch.fx.GraphModule

    class CapturedModule(_LazyGraphModule):
        """A GraphModule whose Python code is made when it is first used, and forgotten with it."""

        def _real_recompile(self) -> Any:
            code = super()._real_recompile()
            release_source_with(self)
            return code

    return CapturedModule


def captured_module(root: Any, graph: Any, class_name: str) -> Any:
    """The GraphModule of a captured graph. Its Python code costs 15 us a node and is made when it is first used."""
    module = _captured_module()(root, graph, class_name)
    if getattr(module, "real_recompile", None) is None:
        release_source_with(module)
    return module


def settled_forward(fn: Any) -> Any:
    """``fn``, or if it is the ``forward`` of a module whose code is not made yet, the one with code: the other would
    go through the module at each call.
    """
    module = getattr(fn, "__self__", None)
    if getattr(module, "real_recompile", None) is None or getattr(fn, "__name__", "") != "_lazy_forward":
        return fn
    module.real_recompile()
    return module.forward


def append_node(graph: Any, name: str, op: str, target: Any, args: Any, kwargs: Any, behind: Any = None) -> Any:
    """Put a node at the end of a graph, or right behind another, by the short path (3 us; `Graph.create_node` takes
    34). ``name`` is a proposal."""
    namespace = graph._graph_namespace
    used = namespace._used_names
    while name in used:
        name += "_"
    node = torch.fx.Node(graph, name, op, target, args, kwargs)
    if behind is None:
        graph._root.prepend(node)
    else:
        behind.append(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    namespace._obj_to_name[node] = name
    if isinstance(used, set):
        used.add(name)
    else:
        used[name] = None
    return node


#: Sorts lists of tensors by device and dtype, for optimizers and clipping of gradients.
group_tensors: Any = getattr(torch._C, "_group_tensors_by_device_and_dtype", None)


def open_modes() -> tuple[int, int]:
    """How many dispatch modes and function modes are active: what ``leave_modes`` goes back to."""
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


def leave_modes(before: tuple[int, int]) -> None:
    """Takes the modes off that were put on since and stayed."""
    while torch._C._len_torch_dispatch_stack() > before[0]:
        torch._C._pop_torch_dispatch_stack(None)
    while torch._C._len_torch_function_stack() > before[1]:
        torch._C._pop_torch_function_stack()
