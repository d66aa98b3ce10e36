"""Shape rules of the hottest operators: metadata of the results in a few microseconds of plain Python.

`OWN_RULES[overload](args, kwargs) -> TensorMeta | tuple of them`; TensorMeta is `(shape, stride, dtype, device)`.
A rule raises NotImplementedError for a case that it leaves to the fallback. Strides are those of eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
Tensor = torch.Tensor
OWN_RULES: dict[Any, Callable] = {}

_INTEGRAL = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool}
_FLOATING = {torch.float32, torch.float64, torch.float16, torch.bfloat16}
_KNOWN = _INTEGRAL | _FLOATING


def contiguous(shape: Any) -> tuple:
    """Row-major strides of a shape."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        if size != 0:
            step = step * size
        # a dimension of size 0 counts as 1, as in eager
    strides.reverse()
    return tuple(strides)


def is_contiguous(shape: Any, stride: Any) -> bool:
    """True when the strides are row-major, sizes of 1 not counting."""
    step = 1
    for i in range(len(shape) - 1, -1, -1):
        size = shape[i]
        if size == 1:
            continue
        if size == 0:
            return True
        if stride[i] != step:
            return False
        step = step * size
    return True


def is_dense(shape: Any, stride: Any) -> bool:
    """True when the elements fill a block of memory without gaps or overlaps (in any order of dimensions)."""
    pairs = sorted((st, sz) for sz, st in zip(shape, stride, strict=True) if sz != 1)
    step = 1
    for st, sz in pairs:
        if sz == 0:
            return True
        if st != step:
            return False
        step = step * sz
    return True


def broadcast(a: Any, b: Any) -> tuple:
    """Shape of two operands together; the error is eager's."""
    if a == b:
        return tuple(a)
    na, nb = len(a), len(b)
    if na < nb:
        a, b, na, nb = b, a, nb, na
    out = list(a)
    for i in range(1, nb + 1):
        x, y = a[-i], b[-i]
        if x == y or y == 1:
            continue
        if x == 1:
            out[-i] = y
        else:
            raise RuntimeError(
                f"The size of tensor a ({x}) must match the size of tensor b ({y}) at non-singleton dimension {na - i}"
            )
    return tuple(out)


def _is_channels_last(shape: Any, stride: Any) -> bool:
    if len(shape) != 4 or 0 in shape:
        return False
    step = 1
    for i in (1, 3, 2, 0):
        if shape[i] != 1:
            if stride[i] != step:
                return False
        elif i == 1 and stride[i] < 0:
            return False
        step = step * shape[i]
    return True


def elementwise_strides(shape: tuple, operands: list) -> tuple:
    """Strides of a fresh result of an elementwise op. `operands` is a list of (shape, stride) of its tensors."""
    ndim = len(shape)
    if ndim == 0:
        return ()
    same = True
    for op_shape, _ in operands:
        if tuple(op_shape) != shape:
            same = False
            break
    if same:
        first = operands[0][1]
        all_contiguous = True
        equal = True
        for op_shape, stride in operands:
            if all_contiguous and not is_contiguous(op_shape, stride):
                all_contiguous = False
            if stride != first:
                equal = False
        if all_contiguous:
            return contiguous(shape)
        if equal and is_dense(shape, first):
            return tuple(first)
        if ndim == 4 and all(_is_channels_last(s, t) for s, t in operands):
            n, c, h, w = shape
            return (h * w * c, 1, w * c, c)
    return _ordered_strides(shape, operands)


def _ordered_strides(shape: tuple, operands: list) -> tuple:
    ndim = len(shape)
    expanded = []
    for op_shape, stride in operands:
        lead = ndim - len(op_shape)
        if lead == ndim:
            continue
        full = [0] * lead
        for i, size in enumerate(op_shape):
            full.append(0 if size == 1 and shape[lead + i] != 1 else stride[i])
        expanded.append(full)
    order = list(range(ndim - 1, -1, -1))

    def compare(d0: int, d1: int) -> int:
        for stride in expanded:
            s0, s1 = stride[d0], stride[d1]
            if s0 == 0 or s1 == 0:
                continue
            if s0 < s1:
                return -1
            if s0 > s1:
                return 1
            if shape[d0] > shape[d1]:
                return 1
        return 0

    for i in range(1, ndim):
        at = i
        for j in range(i - 1, -1, -1):
            result = compare(order[j], order[at])
            if result > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif result < 0:
                break
    strides = [0] * ndim
    step = 1
    for dim in order:
        strides[dim] = step
        if shape[dim] != 0:
            step = step * shape[dim]
    return tuple(strides)


def promote(values: tuple) -> torch.dtype:
    """Result dtype of tensors and Python scalars together, as eager promotes."""
    dtype = None
    for value in values:
        if isinstance(value, Tensor):
            if dtype is None:
                if len(value.shape) == 0:
                    break
                dtype = value.dtype
            elif value.dtype is not dtype or len(value.shape) == 0:
                if len(value.shape) == 0 and value.dtype is dtype:
                    continue
                break
        elif isinstance(value, bool):
            continue
        elif isinstance(value, int):
            if dtype is torch.bool or dtype is None:
                break
        elif isinstance(value, float):
            if dtype not in _FLOATING:
                break
        elif value is not None:
            break
    else:
        if dtype is not None:
            return dtype
    return _promote_slowly(values)


_CATEGORY = {torch.bool: 0}


def _category(dtype: torch.dtype) -> int:
    if dtype is torch.bool:
        return 0
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else 1


def _promote_slowly(values: tuple) -> torch.dtype:
    dim = zero = scalar = None
    for value in values:
        if isinstance(value, Tensor):
            if len(value.shape):
                dim = value.dtype if dim is None else torch.promote_types(dim, value.dtype)
            else:
                zero = value.dtype if zero is None else torch.promote_types(zero, value.dtype)
        elif value is not None:
            dtype = _scalar_dtype(value)
            scalar = dtype if scalar is None else torch.promote_types(scalar, dtype)
    result = dim
    for weaker in (zero, scalar):
        if weaker is None:
            continue
        if result is None:
            result = weaker
        elif _category(weaker) > _category(result):
            if weaker is scalar and weaker.is_complex and result.is_floating_point:
                result = torch.promote_types(result, torch.complex32) if result is not torch.bfloat16 else weaker
            else:
                result = weaker
    assert result is not None
    return result


def _scalar_dtype(value: Any) -> torch.dtype:
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(value, (int, torch.SymInt)):
        return torch.int64
    if isinstance(value, (float, torch.SymFloat)):
        return torch.get_default_dtype()
    if isinstance(value, complex):
        return torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
    raise NotImplementedError


def _elementwise_meta(tensors: list, dtype: torch.dtype, number: bool = False) -> tuple:
    if len(tensors) == 1:
        t = tensors[0]
        shape = tuple(t.shape)
        stride = tuple(t.stride())
        if number and stride != contiguous(shape):  # eager sees a 0-dim operand and leaves its fast path
            return (shape, elementwise_strides(shape, [(shape, stride), ((), ())]), dtype, t.device)
        return (shape, elementwise_strides(shape, [(shape, stride)]), dtype, t.device)
    shape = tuple(tensors[0].shape)
    operands = [(shape, tensors[0].stride())]
    device = tensors[0].device
    for t in tensors[1:]:
        op_shape = tuple(t.shape)
        operands.append((op_shape, t.stride()))
        if op_shape != shape:
            shape = broadcast(shape, op_shape)
        other = t.device
        if other != device:
            if not op_shape and other.type == "cpu":
                pass
            elif device.type == "cpu" and not operands[0][0] and len(operands) == 2:
                device = other
            else:
                raise NotImplementedError
    return (shape, elementwise_strides(shape, operands), dtype, device)


def _checked(tensors: list) -> None:
    for t in tensors:
        if t.dtype not in _KNOWN and not t.dtype.is_complex:
            raise NotImplementedError


def _make_pointwise(kind: str, count: int) -> Callable:
    def rule(args: tuple, kwargs: dict) -> tuple:
        values = args[:count]
        tensors = [v for v in values if isinstance(v, Tensor)]
        if not tensors:
            raise NotImplementedError
        if count > 1 or kind != "same":
            _checked(tensors)
        if kind == "bool":
            dtype = torch.bool
        elif kind == "same":
            dtype = tensors[0].dtype
        else:
            dtype = promote(values)
            if kind == "float" and dtype in _INTEGRAL:
                dtype = torch.get_default_dtype()
        return _elementwise_meta(tensors, dtype, number=count == 2 and len(tensors) == 1)

    return rule


def _register(names: str, kind: str, count: int) -> None:
    for name in names.split():
        packet_name, _, overload = name.partition(".")
        packet = getattr(aten, packet_name, None)
        overload = overload or "default"
        if packet is not None and overload in packet.overloads():
            OWN_RULES[getattr(packet, overload)] = _make_pointwise(kind, count)


_register(
    "neg relu silu hardswish hardsigmoid clamp clamp_min clamp_max positive gelu hardtanh leaky_relu elu softplus "
    "square floor ceil round trunc sign bitwise_not fill.Scalar hardshrink softshrink relu6 mish zero sgn "
    "celu selu threshold",
    "same",
    1,
)
_register(
    "exp log sqrt rsqrt sin cos tanh sigmoid erf reciprocal log1p expm1 log2 log10 exp2 erfc tan asin acos atan "
    "sinh cosh asinh acosh atanh log_sigmoid lgamma digamma",
    "float",
    1,
)
_register("logical_not isnan isinf isfinite", "bool", 1)
_register(
    "add.Tensor sub.Tensor mul.Tensor add.Scalar sub.Scalar mul.Scalar rsub.Scalar rsub.Tensor maximum minimum "
    "remainder.Tensor fmod.Tensor bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor floor_divide "
    "remainder.Scalar fmod.Scalar",
    "promote",
    2,
)
_register("pow.Tensor_Tensor", "promote", 2)
_register("div.Tensor div.Scalar true_divide.Tensor atan2", "float", 2)
_register(
    "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar "
    "ge.Scalar logical_and logical_or logical_xor",
    "bool",
    2,
)
_register(
    "tanh_backward sigmoid_backward gelu_backward threshold_backward silu_backward hardswish_backward "
    "hardsigmoid_backward leaky_relu_backward hardtanh_backward elu_backward softplus_backward mse_loss_backward "
    "log_sigmoid_backward",
    "promote",
    2,
)
for _name in ("mse_loss_backward", "log_sigmoid_backward", "positive", "square", "relu6", "selu", "celu"):
    for _key in [k for k in OWN_RULES if k._schema.name == f"aten::{_name}"]:
        del OWN_RULES[_key]  # not elementwise in all of their modes, or composite


def _integer_guard(names: str) -> None:
    """Rounding and activation ops raise or change dtype for some integers: the fallback decides there."""
    for name in names.split():
        for overload in getattr(aten, name).overloads():
            key = getattr(getattr(aten, name), overload)
            inner = OWN_RULES.get(key)
            if inner is None:
                continue

            def rule(args: tuple, kwargs: dict, inner: Callable = inner) -> tuple:
                if not args[0].dtype.is_floating_point:
                    raise NotImplementedError
                return inner(args, kwargs)

            OWN_RULES[key] = rule


_integer_guard(
    "neg relu silu hardswish hardsigmoid gelu hardtanh leaky_relu elu softplus sgn clamp clamp_min clamp_max "
    "hardshrink softshrink mish threshold floor ceil round trunc sign reciprocal sub rsub pow remainder fmod "
    "bitwise_not tanh_backward sigmoid_backward"
)


def _rule(*funcs: Any) -> Callable:
    def register(rule: Callable) -> Callable:
        for func in funcs:
            OWN_RULES[func] = rule
        return rule

    return register


def _like(t: Tensor, dtype: torch.dtype | None = None) -> tuple:
    """Metadata of `empty_like(t)` with the format preserved."""
    shape = tuple(t.shape)
    stride = t.stride()
    if is_contiguous(shape, stride):
        stride = contiguous(shape) if not is_dense(shape, stride) or 1 in shape else tuple(stride)
        if 1 in shape:
            stride = tuple(t.stride()) if is_dense(shape, t.stride()) else stride
    elif not is_dense(shape, stride):
        stride = _ordered_strides(shape, [(shape, stride)])
    return (shape, tuple(stride), dtype or t.dtype, t.device)


@_rule(aten.pow.Tensor_Scalar)
def _pow_scalar(args: tuple, kwargs: dict) -> tuple:
    if not args[0].dtype.is_floating_point or isinstance(args[1], complex):
        raise NotImplementedError
    return _elementwise_meta([args[0]], args[0].dtype)


@_rule(aten.where.self)
def _where(args: tuple, kwargs: dict) -> tuple:
    return _elementwise_meta(list(args), promote(args[1:]))


@_rule(aten.masked_fill.Scalar)
def _masked_fill(args: tuple, kwargs: dict) -> tuple:
    self, mask = args[:2]
    if tuple(self.shape) != broadcast(tuple(self.shape), tuple(mask.shape)):
        raise NotImplementedError
    return _like(self)


@_rule(aten.clone.default)
def _clone(args: tuple, kwargs: dict) -> tuple:
    return _formatted(args[0], kwargs.get("memory_format"), args[0].dtype, args[0].device)


def _formatted(t: Tensor, memory_format: Any, dtype: torch.dtype, device: torch.device) -> tuple:
    if memory_format is None or memory_format is torch.preserve_format:
        shape, stride, _, _ = _like(t)
        return (shape, stride, dtype, device)
    if memory_format is torch.contiguous_format:
        shape = tuple(t.shape)
        return (shape, contiguous(shape), dtype, device)
    raise NotImplementedError


@_rule(aten._to_copy.default)
def _to_copy(args: tuple, kwargs: dict) -> tuple:
    if kwargs.get("layout") not in (None, torch.strided) or kwargs.get("device") is not None:
        raise NotImplementedError
    t = args[0]
    return _formatted(t, kwargs.get("memory_format"), kwargs.get("dtype") or t.dtype, t.device)


@_rule(
    aten.ones_like.default,
    aten.zeros_like.default,
    aten.empty_like.default,
    aten.rand_like.default,
    aten.randn_like.default,
    aten.full_like.default,
)
def _like_factory(args: tuple, kwargs: dict) -> tuple:
    if kwargs.get("device") is not None or kwargs.get("layout") not in (None, torch.strided):
        raise NotImplementedError
    t = args[0]
    return _formatted(t, kwargs.get("memory_format"), kwargs.get("dtype") or t.dtype, t.device)


@_rule(aten.bernoulli.p, aten.bernoulli.default)
def _bernoulli(args: tuple, kwargs: dict) -> tuple:
    t = args[0]
    shape = tuple(t.shape)
    return (shape, contiguous(shape), t.dtype, t.device)


@_rule(aten.native_dropout.default)
def _native_dropout(args: tuple, kwargs: dict) -> tuple:
    meta = _like(args[0])
    return (meta, (meta[0], meta[1], torch.bool, meta[3]))


@_rule(aten.native_dropout_backward.default)
def _native_dropout_backward(args: tuple, kwargs: dict) -> tuple:
    grad, mask = args[:2]
    if mask.dtype is not torch.bool:
        raise NotImplementedError
    dtype = grad.dtype if grad.dtype.is_floating_point or grad.dtype.is_complex else torch.get_default_dtype()
    return _elementwise_meta([grad, mask], dtype)


@_rule(aten.mse_loss_backward.default, aten.huber_loss_backward.default, aten.smooth_l1_loss_backward.default)
def _loss_backward(args: tuple, kwargs: dict) -> tuple:
    grad, x, target = args[:3]
    shape = tuple(x.shape)
    if x.dtype is not target.dtype or x.dtype is not grad.dtype or not x.dtype.is_floating_point:
        raise NotImplementedError
    if broadcast(broadcast(shape, tuple(target.shape)), tuple(grad.shape)) != shape:
        raise NotImplementedError
    return (shape, contiguous(shape), x.dtype, x.device)


@_rule(aten.mm.default)
def _mm(args: tuple, kwargs: dict) -> tuple:
    a, b = args[:2]
    (n, k), (k2, m) = a.shape, b.shape
    if k != k2 or a.dtype is not b.dtype or len(args) > 2 or kwargs:
        raise NotImplementedError
    return ((n, m), (m if m != 0 else 1, 1), a.dtype, a.device)


@_rule(aten.addmm.default)
def _addmm(args: tuple, kwargs: dict) -> tuple:
    bias, a, b = args[:3]
    (n, k), (k2, m) = a.shape, b.shape
    if k != k2 or a.dtype is not b.dtype or bias.dtype is not a.dtype or broadcast((n, m), tuple(bias.shape)) != (n, m):
        raise NotImplementedError
    return ((n, m), (m if m != 0 else 1, 1), a.dtype, a.device)


@_rule(aten.bmm.default)
def _bmm(args: tuple, kwargs: dict) -> tuple:
    a, b = args[:2]
    (n, p, k), (n2, k2, m) = a.shape, b.shape
    if k != k2 or n != n2 or a.dtype is not b.dtype or len(args) > 2:
        raise NotImplementedError
    shape = (n, p, m)
    return (shape, contiguous(shape), a.dtype, a.device)


def _reduced(shape: tuple, dims: Any, keepdim: bool) -> tuple:
    ndim = len(shape)
    if dims is None or len(dims) == 0:
        wanted = set(range(ndim))
    else:
        wanted = set()
        for dim in dims:
            if not -max(ndim, 1) <= dim < max(ndim, 1):
                raise NotImplementedError
            wanted.add(dim % max(ndim, 1))
    if keepdim:
        return tuple(1 if i in wanted else s for i, s in enumerate(shape)), wanted
    return tuple(s for i, s in enumerate(shape) if i not in wanted), wanted


@_rule(aten.sum.dim_IntList, aten.mean.dim)
def _sum_dim(args: tuple, kwargs: dict) -> tuple:
    t = args[0]
    dims = args[1] if len(args) > 1 else None
    keepdim = bool(args[2]) if len(args) > 2 else False
    dtype = kwargs.get("dtype") or (torch.int64 if t.dtype in _INTEGRAL else t.dtype)
    shape, wanted = _reduced(tuple(t.shape), dims, keepdim)
    if not is_contiguous(tuple(t.shape), t.stride()):
        raise NotImplementedError
    return (shape, contiguous(shape), dtype, t.device)


@_rule(aten.sum.default, aten.mean.default)
def _sum_all(args: tuple, kwargs: dict) -> tuple:
    t = args[0]
    return ((), (), kwargs.get("dtype") or (torch.int64 if t.dtype in _INTEGRAL else t.dtype), t.device)


@_rule(aten._softmax.default, aten._log_softmax.default)
def _softmax(args: tuple, kwargs: dict) -> tuple:
    t, _, half_to_float = args
    shape, stride, dtype, device = _like(t)
    return (shape, stride, torch.float32 if half_to_float else dtype, device)


@_rule(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
def _softmax_backward(args: tuple, kwargs: dict) -> tuple:
    grad, output, _, dtype = args
    if grad.dtype is not dtype:
        raise NotImplementedError
    if not is_contiguous(tuple(grad.shape), grad.stride()) or not is_contiguous(tuple(grad.shape), output.stride()):
        raise NotImplementedError
    shape = tuple(grad.shape)
    return (shape, contiguous(shape), dtype, grad.device)


@_rule(aten.native_layer_norm.default)
def _layer_norm(args: tuple, kwargs: dict) -> tuple:
    t, normalized, weight, bias = args[:4]
    shape = tuple(t.shape)
    if not is_contiguous(shape, t.stride()):
        raise NotImplementedError
    inner = tuple(normalized)
    if shape[len(shape) - len(inner) :] != inner:
        raise NotImplementedError
    stat = shape[: len(shape) - len(inner)] + (1,) * len(inner)
    dtype = t.dtype
    if t.device.type != "cpu":
        dtype = torch.float32 if t.dtype in (torch.float16, torch.bfloat16) else t.dtype
    elif weight is not None and weight.dtype is not t.dtype:
        dtype = weight.dtype  # half-precision input under autocast: the statistics have the precision of the weight
    stats = (stat, contiguous(stat), dtype, t.device)
    return ((shape, contiguous(shape), t.dtype, t.device), stats, stats)


@_rule(aten.native_layer_norm_backward.default)
def _layer_norm_backward(args: tuple, kwargs: dict) -> tuple:
    grad, t, normalized, _, _, weight, bias, mask = args
    shape = tuple(t.shape)
    if not is_contiguous(shape, t.stride()):
        raise NotImplementedError
    inner = tuple(normalized)
    dx = (shape, contiguous(shape), t.dtype, t.device) if mask[0] else None
    dw = (inner, contiguous(inner), weight.dtype, t.device) if mask[1] and weight is not None else None
    db = (inner, contiguous(inner), bias.dtype, t.device) if mask[2] and bias is not None else None
    return (dx, dw, db)


@_rule(aten.embedding.default)
def _embedding(args: tuple, kwargs: dict) -> tuple:
    weight, index = args[:2]
    shape = tuple(index.shape) + (weight.shape[1],)
    return (shape, contiguous(shape), weight.dtype, weight.device)


@_rule(aten.embedding_dense_backward.default)
def _embedding_backward(args: tuple, kwargs: dict) -> tuple:
    grad, _, count = args[:3]
    shape = (count, grad.shape[-1])
    return (shape, contiguous(shape), grad.dtype, grad.device)


def suggests_channels_last(shape: Any, stride: Any) -> bool:
    """Eager's test for a 4-d tensor laid out with channels innermost (ambiguous sizes of 1 count as not)."""
    if len(shape) != 4 or stride[1] == 0:
        return False
    least = 0
    for dim in (1, 3, 2, 0):
        if shape[dim] == 0 or stride[dim] < least:
            return False
        if dim == 0 and least == stride[1]:
            return False
        least = stride[dim]
        if shape[dim] > 1:
            least = least * shape[dim]
    return True


def _convolution_strides(shape: tuple, operands: tuple) -> tuple:
    """Strides of a convolution's results: channels innermost when the input or the weight is laid out so."""
    if len(shape) == 4:
        if any(suggests_channels_last(t.shape, t.stride()) for t in operands):
            n, c, h, w = shape
            return (h * w * c, 1, w * c, c)
    elif any(not is_contiguous(tuple(t.shape), t.stride()) or t.stride()[1] == 1 and t.shape[1] != 1 for t in operands):
        raise NotImplementedError
    return contiguous(shape)


@_rule(aten.convolution.default)
def _convolution(args: tuple, kwargs: dict) -> tuple:
    t, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args
    dims = len(weight.shape) - 2
    if len(t.shape) != dims + 2 or transposed or t.shape[1] != weight.shape[1] * groups:
        raise NotImplementedError
    if t.dtype is not weight.dtype or (bias is not None and bias.dtype is not t.dtype) or 0 in t.shape:
        raise NotImplementedError

    def at(values: Any, i: int) -> Any:
        return values[i] if len(values) > 1 else values[0]

    shape = [t.shape[0], weight.shape[0]]
    for i in range(dims):
        reach = at(dilation, i) * (weight.shape[2 + i] - 1) + 1
        size = (t.shape[2 + i] + 2 * at(padding, i) - reach) // at(stride, i) + 1
        if size <= 0:
            raise NotImplementedError
        shape.append(size)
    result = tuple(shape)
    return (result, _convolution_strides(result, (t, weight)), t.dtype, t.device)


@_rule(aten.convolution_backward.default)
def _convolution_backward(args: tuple, kwargs: dict) -> tuple:
    grad, t, weight, bias_sizes = args[:4]
    transposed, mask = args[7], args[10]
    if transposed or any(x.dtype is not t.dtype for x in (grad, weight)) or 0 in t.shape:
        raise NotImplementedError

    def like(x: Tensor) -> tuple:
        shape = tuple(x.shape)
        return (shape, _convolution_strides(shape, (t, weight)), x.dtype, x.device)

    db = ((grad.shape[1],), (1,), t.dtype, t.device) if mask[2] else None
    return (like(t) if mask[0] else None, like(weight) if mask[1] else None, db)


@_rule(
    *(
        getattr(aten, f"{name}_backward").default
        for name in (
            "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
            "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
            "upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"
        ).split()
    )
)
def _upsample_backward(args: tuple, kwargs: dict) -> tuple:
    grad, _, size = args[:3]
    if not is_contiguous(tuple(grad.shape), grad.stride()) or suggests_channels_last(grad.shape, grad.stride()):
        raise NotImplementedError
    return (tuple(size), contiguous(size), grad.dtype, grad.device)


def _batch_stats(t: Tensor) -> tuple:
    channels = (t.shape[1],)
    return (channels, (1,), torch.float32 if t.dtype in (torch.float16, torch.bfloat16) else t.dtype, t.device)


@_rule(aten._native_batch_norm_legit_functional.default)
def _batch_norm(args: tuple, kwargs: dict) -> tuple:
    t, weight, bias, mean, var, training = args[:6]
    if not training or mean is None or weight is None or t.dtype not in (torch.float32, torch.float64):
        raise NotImplementedError
    if not is_contiguous(tuple(t.shape), t.stride()) or weight.dtype is not t.dtype:
        raise NotImplementedError
    stats = _batch_stats(t)
    return ((tuple(t.shape), contiguous(t.shape), t.dtype, t.device), stats, stats, _like(mean), _like(var))


@_rule(aten.native_batch_norm_backward.default)
def _batch_norm_backward(args: tuple, kwargs: dict) -> tuple:
    grad, t, weight = args[:3]
    mask = args[9]
    if weight is None or t.dtype is not weight.dtype or grad.dtype is not t.dtype:
        raise NotImplementedError
    shape = tuple(t.shape)
    if not is_contiguous(shape, t.stride()) or not is_contiguous(shape, grad.stride()):
        raise NotImplementedError
    parameter = (tuple(weight.shape), contiguous(weight.shape), weight.dtype, t.device)
    return (
        (shape, contiguous(shape), t.dtype, t.device) if mask[0] else None,
        parameter if mask[1] else None,
        parameter if mask[2] else None,
    )


@_rule(
    aten.zeros.default,
    aten.ones.default,
    aten.empty.memory_format,
    aten.rand.default,
    aten.randn.default,
    aten.full.default,
)
def _factory(args: tuple, kwargs: dict) -> tuple:
    from .fallback import normal_device

    if kwargs.get("layout") not in (None, torch.strided) or kwargs.get("names") is not None:
        raise NotImplementedError
    if kwargs.get("memory_format") not in (None, torch.contiguous_format):
        raise NotImplementedError
    dtype = kwargs.get("dtype")
    if dtype is None:
        dtype = torch.get_default_dtype()
        if len(args) > 1:
            dtype = _scalar_dtype(args[1])
    device = kwargs.get("device")
    device = torch.get_default_device() if device is None else normal_device(device)
    shape = tuple(args[0])
    return (shape, contiguous(shape), dtype, device)
