"""Extern calls in the generated wrapper: how an ATen op that is not lowered is reached from C++.

Three routes, the first that fits: a function of libtorch's C shim with hand-written arguments (`DIRECT`), the
dispatcher with a stack of
64-bit cells (types listed in `_cell`), and a Python callback. The route of every call can be read off
`ExternPlan.route`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .._torch import below_autograd
from ..index import Expr
from ..ir.program import BufferRef, ExternCall


class NoRoute(Exception):
    """This route cannot carry the call; the next one is tried. The text says why."""


@dataclass
class ExternPlan:
    """How one extern call is made. `route` is "shim", "dispatcher" or "python"; `why` says why not a faster one."""

    route: str
    lines: list[str] = field(default_factory=list)
    python: Callable | None = None
    why: str = ""


class Names:
    """What an extern needs to know about the wrapper that is being written."""

    device = "cpu"  # "cpu" or "cuda": the shim has functions of its own for each

    def handle(self, ref: BufferRef) -> str:
        """C text of the tensor handle of a buffer (statements that make it were emitted before)."""
        raise NotImplementedError

    def integer(self, e: Expr | int) -> str:
        """C text of an integer."""
        raise NotImplementedError


def _bind(call: ExternCall) -> dict[str, Any]:
    """Arguments by schema name, defaults filled in."""
    schema = call.target._schema
    out: dict[str, Any] = {}
    for k, a in enumerate(schema.arguments):
        if k < len(call.args) and not a.kwarg_only:
            out[a.name] = call.args[k]
        elif a.name in call.kwargs:
            out[a.name] = call.kwargs[a.name]
        elif a.has_default_value():
            out[a.name] = a.default_value
        else:
            raise NoRoute(f"argument {a.name} is missing")
    return out


def _ints(names: Names, values: Any) -> str:
    if not isinstance(values, (list, tuple)):
        raise NoRoute("not a list of ints")
    return f"Ints<{max(1, len(values))}>{{{{" + (", ".join(names.integer(v) for v in values) or "0") + "}}"


def _matrix_call(function: str, order: tuple[str, ...], scalars: tuple[str, ...] = ()) -> Callable:
    def make(call: ExternCall, names: Names, outs: list[str], out_handle: str | None) -> list[str]:
        if out_handle is None:
            raise NoRoute("the shim only has the out variant")
        given = _bind(call)
        parts = [out_handle, *(names.handle(given[a]) for a in order)]
        for s in scalars:
            if not isinstance(given[s], (int, float)):
                raise NoRoute(f"{s} is not a number")
            parts.append(repr(float(given[s])))
        return [f"failed = aoti_torch_{names.device}_{function}({', '.join(parts)});"]

    return make


def _convolution(call: ExternCall, names: Names, outs: list[str], out_handle: str | None) -> list[str]:
    if out_handle is not None:
        raise NoRoute("the shim returns a new tensor")
    g = _bind(call)
    lines = []
    bias = "nullptr"
    if g["bias"] is not None:
        lines.append(f"void* bias = {names.handle(g['bias'])};")
        bias = "&bias"
    lists = [f"{_ints(names, g[a])}, {len(g[a])}" for a in ("stride", "padding", "dilation")]
    lines.append(
        f"failed = aoti_torch_{names.device}_convolution({names.handle(g['input'])}, {names.handle(g['weight'])}, {bias}, {', '.join(lists)}, "  # noqa: E501
        f"{int(g['transposed'])}, {_ints(names, g['output_padding'])}, {len(g['output_padding'])}, {names.integer(g['groups'])}, {outs[0]});"  # noqa: E501
    )
    return lines


def _convolution_backward(call: ExternCall, names: Names, outs: list[str], out_handle: str | None) -> list[str]:
    if out_handle is not None:
        raise NoRoute("the shim returns new tensors")
    g = _bind(call)
    lines, sizes = [], "nullptr, 0"
    if g["bias_sizes"] is not None:
        lines.append(f"const i64 bias_sizes_[] = {{{', '.join(names.integer(v) for v in g['bias_sizes'])}}}; const i64* bias_sizes = bias_sizes_;")  # noqa: E501
        sizes = f"&bias_sizes, {len(g['bias_sizes'])}"
    lists = [f"{_ints(names, g[a])}, {len(g[a])}" for a in ("stride", "padding", "dilation")]
    lines.append(f"const int wanted[] = {{{', '.join(str(int(m)) for m in g['output_mask'])}}};")
    tensors = ", ".join(names.handle(g[a]) for a in ("grad_output", "input", "weight"))
    lines.append(
        f"failed = aoti_torch_{names.device}_convolution_backward({tensors}, {sizes}, {', '.join(lists)}, {int(g['transposed'])}, "  # noqa: E501
        f"{_ints(names, g['output_padding'])}, {len(g['output_padding'])}, {names.integer(g['groups'])}, wanted, 3, {', '.join(outs)});"  # noqa: E501
    )
    return lines


def _linear(call: ExternCall, names: Names, outs: list[str], out_handle: str | None) -> list[str]:
    g = _bind(call)
    if out_handle is not None or names.device != "cpu" or g["attr"] != "none" or g["scalars"] or g["algorithm"]:
        raise NoRoute("only the plain linear layer is written")
    x, w = names.handle(g["X"]), names.handle(g["W"])
    lines, bias = [], "nullptr"
    if g["B"] is not None:
        lines.append(f"void* bias = {names.handle(g['B'])};")
        bias = "&bias"
    lines.append('const char* const none = "";')
    lines.append(f'failed = aoti_torch_cpu__linear_pointwise({x}, {w}, {bias}, "none", nullptr, 0, &none, {outs[0]});')
    return lines


def _packed_convolution(call: ExternCall, names: Names, outs: list[str], out_handle: str | None) -> list[str]:
    g = _bind(call)
    if out_handle is not None or names.device != "cpu" or g["attr"] not in ("none", "relu") or g["scalars"]:
        raise NoRoute("only plain and rectified convolutions are written")
    lines, bias = [], "nullptr"
    if g["B"] is not None:
        lines.append(f"void* bias = {names.handle(g['B'])};")
        bias = "&bias"
    lists = ", ".join(f"{_ints(names, g[a])}, {len(g[a])}" for a in ("padding", "stride", "dilation"))
    lines.append('const char* const none = "";')
    lines.append(
        f"failed = aoti_torch_cpu_mkldnn__convolution_pointwise("
        f"{names.handle(g['X'])}, {names.handle(g['W'])}, {bias}, "
        f'{lists}, {names.integer(g["groups"])}, "{g["attr"]}", nullptr, 0, &none, {outs[0]});'
    )
    return lines


DIRECT: dict[str, Callable] = {
    "mkldnn::_convolution_pointwise": _packed_convolution,
    "mkldnn::_linear_pointwise": _linear,
    "aten::mm": _matrix_call("mm_out", ("self", "mat2")),
    "aten::bmm": _matrix_call("bmm_out", ("self", "mat2")),
    "aten::addmm": _matrix_call("addmm_out", ("self", "mat1", "mat2"), ("beta", "alpha")),
    "aten::baddbmm": _matrix_call("baddbmm_out", ("self", "batch1", "batch2"), ("beta", "alpha")),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
}
"""ATen op (schema name) → maker of the statements that call it through the shim."""

_DTYPE_CODES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6, torch.float64: 7,  # noqa: E501
    torch.complex32: 8, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
    torch.float8_e5m2: 23, torch.float8_e4m3fn: 24,
}  # fmt: skip


def device_code(device: torch.device) -> str:
    """Device type and index as the shim takes them."""
    if device.type == "cuda":
        return f"1, {device.index or 0}"
    return "0, -1"


def dtype_code(dtype: torch.dtype) -> int:
    """The number of a dtype in the shim (c10::ScalarType's order, fixed by its serialisation format)."""
    code = _DTYPE_CODES.get(dtype)
    if code is None:
        raise NoRoute(f"no shim number for {dtype}")
    return code


def _cell(value: Any, kind: Any, names: Names) -> str:
    """One argument as a 64-bit cell; `kind` is its schema type."""
    text = str(kind)
    if text.startswith("Optional["):
        return "Cell(0)" if value is None else f"some({_cell(value, kind.getElementType(), names)})"
    if value is None:
        raise NoRoute(f"None for {text}")
    if text == "Tensor":
        if not isinstance(value, BufferRef):
            raise NoRoute("a tensor argument that is no buffer")
        return f"of({names.handle(value)})"
    if text.startswith("List["):
        items = [_cell(v, kind.getElementType(), names) for v in value]
        return f"list(Cells<{max(1, len(items))}>{{{{{', '.join(items) or '0'}}}}}, {len(items)})"
    if text == "bool":
        return f"Cell({int(bool(value))})"
    if text in ("int", "SymInt") and isinstance(value, (int, Expr)) and not isinstance(value, bool):
        real = getattr(kind, "kind", lambda: "IntType")()
        if isinstance(value, torch.dtype) or real not in ("IntType", "SymIntType"):
            raise NoRoute(f"an enumeration given as int ({real})")
        return f"Cell({names.integer(value)})"
    if text == "float" and isinstance(value, (int, float)):
        if value != value or value in (float("inf"), float("-inf")):
            body = {True: '__builtin_nan("")'}.get(value != value, "__builtin_inf()" if value > 0 else "-__builtin_inf()")  # noqa: E501
            return f"of(double({body}))"
        return f"of(double({float(value)!r}))"
    if text == "str":
        raise NoRoute("strings go through Python")
    raise NoRoute(f"no cell for {text} = {value!r}")


def _dispatcher(call: ExternCall, names: Names, outs: list[str | None]) -> list[str]:
    schema = call.target._schema
    given = _bind(call)
    kinds = {a.name: a for a in schema.arguments}
    for a in schema.arguments:
        if str(a.real_type if hasattr(a, "real_type") else a.type) != str(a.type) and str(a.type) in ("int", "Optional[int]"):  # noqa: E501
            real = str(a.real_type)
            if real not in ("int", "SymInt", "Optional[int]", "Optional[SymInt]") and given[a.name] is not None:
                raise NoRoute(f"argument {a.name} is a {real}")
    if any(str(r.type) != "Tensor" for r in schema.returns):
        raise NoRoute("returns something that is not a tensor")
    if schema.is_mutable:
        raise NoRoute("mutates its arguments")
    if len(schema.returns) != len(outs):
        raise NoRoute("number of results")
    cells = [_cell(given[a], kinds[a].type, names) for a in kinds]
    size = max(len(cells), len(outs), 1)
    name, overload = schema.name, schema.overload_name
    lines = [f"Cell stack[{size}] = {{{', '.join(cells) or '0'}}};", f'failed = dispatch("{name}", "{overload}", stack);']  # noqa: E501
    lines.append("if (!failed) {")
    for k, o in enumerate(outs):
        if o is not None:
            lines.append(f"  *{o} = (void*)stack[{k}];")
        else:
            lines.append(f"  if (stack[{k}]) aoti_torch_delete_tensor_object((void*)stack[{k}]);")
    lines.append("}")
    return lines


# Kernels that keep what their backward needs only while gradient mode is on.
_GRAD_MODE_OPS = frozenset({"aten::mkldnn_rnn_layer"})


def is_grad_mode_read(target: Any) -> bool:
    """True for ops whose kernels look at the gradient mode: they run below autograd with it on."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.name in _GRAD_MODE_OPS


def python_call(call: ExternCall) -> tuple[Callable, list[BufferRef], list[Expr]]:
    """A function of (list of tensors, list of ints) that makes the call, and what to pass."""
    tensors: list[BufferRef] = []
    ints: list[Expr] = []

    def plan(a: Any) -> Callable[[list, list], Any]:
        if isinstance(a, BufferRef):
            tensors.append(a)
            k = len(tensors) - 1
            return lambda t, i: t[k]
        if isinstance(a, Expr):
            if a.is_const:
                value = int(a)
                return lambda t, i: value
            ints.append(a)
            k = len(ints) - 1
            return lambda t, i: i[k]
        if isinstance(a, (list, tuple)):
            parts = [plan(x) for x in a]
            make = type(a) if type(a) in (list, tuple) else list
            return lambda t, i: make(p(t, i) for p in parts)
        return lambda t, i: a

    args = [plan(a) for a in call.args]
    kwargs = {k: plan(v) for k, v in call.kwargs.items()}
    target, scalars = call.target, dict(call.scalars)
    keeps_state = is_grad_mode_read(target)
    out_form = getattr(getattr(target, "overloadpacket", None), "out", None) if call.out else None
    out_plan = plan(BufferRef(call.outputs[0])) if call.out and call.outputs[0] is not None else None

    def run(t: list, i: list) -> list:
        a = [p(t, i) for p in args]
        k = {n: p(t, i) for n, p in kwargs.items()}
        with torch.set_grad_enabled(keeps_state):
            if out_plan is not None:
                out = out_plan(t, i)
                if out_form is not None:
                    try:
                        out_form(*a, **k, out=out)
                        return []
                    except (TypeError, NotImplementedError):
                        pass
                out.copy_(target(*a, **k))
                return []
            result = target(*a, **k)
        flat: list = []
        for r in result if isinstance(result, (list, tuple)) else (result,):
            flat.extend(r) if isinstance(r, (list, tuple)) else flat.append(r)
        return flat

    if is_grad_mode_read(target):
        inner = run

        def run(t: list, i: list) -> list:
            with below_autograd():
                return inner(t, i)

    run.__name__ = str(target)
    _ = scalars
    return run, tensors, ints


def plan_extern(call: ExternCall, names: Names, outs: list[str | None], out_handle: str | None) -> ExternPlan:
    """Chooses the route of one call. `outs`: C text of `void**` for each result (None: not needed); `out_handle`:
    of a result that
    already has memory."""
    reasons = []
    if isinstance(call.target, torch._ops.OpOverload) and not call.scalars:
        direct = DIRECT.get(call.target._schema.name)
        if direct is not None and call.target._schema.overload_name == "":
            try:
                slots = [o or f"&unused[{k}]" for k, o in enumerate(outs)]
                lines = direct(call, names, slots, out_handle)
                if any(o is None for o in outs):
                    lines = [f"void* unused[{len(outs)}] = {{}};", *lines]
                    lines.append("for (void* u : unused) if (u) aoti_torch_delete_tensor_object(u);")
                return ExternPlan("shim", lines)
            except NoRoute as e:
                reasons.append(f"shim: {e}")
        if is_grad_mode_read(call.target):
            reasons.append("the kernel looks at the gradient mode")
        elif out_handle is None:
            try:
                return ExternPlan("dispatcher", _dispatcher(call, names, outs), why="; ".join(reasons))
            except NoRoute as e:
                reasons.append(f"dispatcher: {e}")
        else:
            reasons.append("dispatcher: writes into given memory")
    else:
        reasons.append("not an ATen op with tensor results only")
    return ExternPlan("python", python=python_call(call)[0], why="; ".join(reasons))
