"""Rules of elementwise ops against eager's metadata: layouts of empty, broadcast and complex results."""

import pytest
import torch

from lamina_primtorch.rules import BY_NAME
from lamina_primtorch.rules.nn import RESIZED
from lamina_primtorch.rules.pointwise import BINARY, POLYNOMIALS, UNARY

BINARIES = [n for names in BINARY.values() for n in names.split() if n.endswith((".default", ".Tensor"))]
BINARIES += [f"special_{n}.default" for n in POLYNOMIALS.split()] + ["complex.default", "polar.default"]
UNARIES = [n if "." in n else n + ".default" for names in UNARY.values() for n in names.split()]
UNARIES += ["angle.default", "isinf.default", "log_sigmoid_forward.default", "frexp.Tensor"]


def op_of(name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def agrees(name, *args, **kwargs):
    try:
        want = op_of(name)(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        return
    try:
        got = BY_NAME[name](args, kwargs)
    except NotImplementedError:
        return
    if isinstance(want, torch.Tensor):
        got, want = [got], [want]
    for g, w in zip(got, want, strict=True):
        assert tuple(g) == (tuple(w.shape), w.stride(), w.dtype, w.device), (args, w.stride())


def laid_out(*shape):
    return torch.ones(shape).mT.contiguous().mT


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("name", BINARIES)
def test_two_operands(name, dtype):
    shapes = [((0, 1, 3), (0, 10, 3)), ((2, 1, 3), (2, 4, 3)), ((4, 3), (4, 3)), ((3,), (2, 4, 3)), ((), (4, 3))]
    for a, b in shapes:
        x, y = (laid_out(*s).to(dtype) if len(s) > 1 else torch.ones(s).to(dtype) for s in (a, b))
        agrees(name, x, y)
        agrees(name, y, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("name", UNARIES)
def test_one_operand(name, dtype):
    if name == "round.decimals":
        return agrees(name, laid_out(4, 3), decimals=1)
    for shape in ((4, 3), (0, 3), (2, 1, 5)):
        agrees(name, laid_out(*shape).to(dtype))
        agrees(name, laid_out(*shape).to(dtype)[..., ::2])


@pytest.mark.parametrize("shape", [(4, 3), (0, 3), (2, 1, 5)])
def test_second_operand(shape):
    agrees("_prelu_kernel.default", laid_out(*shape), torch.ones([1] * len(shape)))
    agrees("native_dropout_backward.default", laid_out(*shape), laid_out(*shape) > 0, 2.0)
    agrees("native_dropout_backward.default", laid_out(*shape)[..., ::2], (laid_out(*shape) > 0)[..., ::2], 0.0)


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_unpooling(format):
    x = torch.ones(2, 3, 4, 5).contiguous(memory_format=format)
    index = torch.arange(120).reshape(2, 3, 4, 5) % 20
    agrees("max_unpool2d.default", x, index, [8, 10])
    agrees("max_unpool2d.default", x[0], index[0], [8, 10])


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", RESIZED.split())
def test_gradient_of_resizing(name, format):
    rank = int(next(c for c in name if c in "123"))
    grad = torch.ones([2, 3, 8, 10, 6][: rank + 2])
    if rank == 2:
        grad = grad.contiguous(memory_format=format)
    elif rank == 3 and format is torch.channels_last:
        grad = grad.contiguous(memory_format=torch.channels_last_3d)
    more = [] if "nearest" in name else [False]
    agrees(f"{name}_backward.default", grad, list(grad.shape[2:]), [2, 3, 4, 5, 3][: rank + 2], *more)


def _operands(shape, dtype):
    t = torch.ones(shape, dtype=dtype)
    yield t
    yield torch.stack([t, t], -1)[..., 0]
    if t.dim() > 1:
        yield t.mT.contiguous().mT


@pytest.mark.parametrize("name", ["hypot", "igamma", "igammac", "nextafter", "logaddexp", "logaddexp2"])
def test_float_only_binaries(name):
    """Strides also of nothing beside a broadcast operand, where torch's own meta kernels are not the CPU's."""
    op = getattr(torch.ops.aten, name).default
    rule = BY_NAME[f"{name}.default"]
    pairs = [((2, 3), (3,)), ((0, 1, 3), (0, 10, 3)), ((2, 1, 3), (2, 4, 3)), ((), (2, 3))]
    for one, two in pairs:
        for da, db in ((torch.float32, torch.float32), (torch.bfloat16, torch.float32)):
            for a in _operands(one, da):
                for b in _operands(two, db):
                    try:
                        want = op(a, b)
                    except RuntimeError:
                        continue  # not every one takes two dtypes
                    got = rule((a, b), {})
                    assert tuple(got[:3]) == (tuple(want.shape), want.stride(), want.dtype)
    with pytest.raises(NotImplementedError):
        rule((torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)), {})


def test_roll_of_nothing():
    x = torch.zeros(0, 0, 0, dtype=torch.int64).mT
    op = torch.ops.aten.roll.default
    assert tuple(BY_NAME["roll.default"]((x, [2]), {})[1]) == op(x, [2]).stride()


def test_hardswish_of_nan_has_a_gradient_of_nan():
    from lamina_primtorch import decomposition_table

    op = torch.ops.aten.hardswish_backward.default
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -3.0, 3.0, 0.5, -0.5, 2.9] * 4)
    g = torch.linspace(-2, 2, 32)
    got = decomposition_table()[op](g, x)
    assert torch.allclose(got, op(g, x), equal_nan=True) and got[0].isnan()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch built without collectives")
def test_a_broadcast_tensor_is_contiguous():
    from lamina_primtorch.shape_rules import RULES

    op = torch.ops._c10d_functional.broadcast.default
    got = dict(RULES.items())[op]((torch.ones(3, 4).t(), 0, "0"), {})
    assert tuple(got) == ((4, 3), (3, 1), torch.float32, torch.device("cpu"))


MIXED = [(torch.int32, torch.bfloat16), (torch.float32, torch.int8), (torch.int64, torch.int64)]


@pytest.mark.parametrize("dtypes", MIXED)
@pytest.mark.parametrize("shapes", [((3,), ()), ((), (3,)), ((2, 3), (3,)), ((), ())])
def test_ldexp_counts_dimensions_as_a_product_does(dtypes, shapes):
    a, b = (torch.ones(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True))
    agrees("ldexp.Tensor", a, b)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 4, 5, 6)])
def test_channels_last_through_joins_and_rolls(shape):
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    for x in (torch.ones(shape).to(memory_format=last), torch.ones(shape), laid_out(*shape)):
        for dim in range(-1, len(shape) + 1):
            want = torch.stack([x, x], dim)
            got = BY_NAME["stack.default"](([x, x], dim), {})
            assert all(n == 1 or s == t for n, s, t in zip(want.shape, got.stride, want.stride(), strict=True)), dim
        rolls = [((1,), (2,)), ((0,), (2,)), ((1, 2), (2, 3)), ((1, 0), (2, 3)), ((0, 1), (3, 1)), ((4,), (2,))]
        for shifts, dims in rolls:
            agrees("roll.default", x, shifts, dims)


def test_pads_of_volumes_keep_channels_last():
    for shape in ((1, 2, 3, 4, 5), (2, 3, 4, 5, 6)):
        x = torch.ones(shape).to(memory_format=torch.channels_last_3d)
        for pad in ([1, 1, 0, 1, 1, 0], [0, 2, 1, 1, 2, 2]):
            agrees("reflection_pad3d.default", x, pad)
            agrees("replication_pad3d.default", x, pad)


@pytest.mark.parametrize("name", ["smooth_l1_loss_backward.default", "huber_loss_backward.default"])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_gradients_of_losses_are_contiguous(name, reduction):
    x = laid_out(4, 3)
    for grad in (laid_out(4, 3), torch.ones(())):
        assert BY_NAME[name]((grad, x, x, reduction, 1.0), {}).stride == (3, 1)
        agrees(name, grad, x, x, reduction, 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.bool])
def test_backward_of_dropout_in_any_dtype(dtype):
    for grad in (laid_out(5, 4, 3).to(dtype), torch.ones(5, 4, 3).to(dtype)):
        for mask in (laid_out(5, 4, 3).bool(), torch.ones(5, 4, 3).bool()):
            assert BY_NAME["native_dropout_backward.default"]((grad, mask, 2.0), {})
            agrees("native_dropout_backward.default", grad, mask, 2.0)
