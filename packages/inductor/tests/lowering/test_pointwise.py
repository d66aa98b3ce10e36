"""Elementwise prims against eager, for all dtypes, shapes and layouts."""

import pytest
import torch
from check import TARGETS, run
from programs import Tracer

from lamina_inductor import compile_graph

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
UNARY = (
    "neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh "
    "tanh asinh acosh atanh erf "
    "erfc sigmoid floor ceil trunc round sign abs isnan isinf isfinite signbit logical_not lgamma digamma "
    "erfinv i0 i0e i1 i1e ndtri"
).split()
BINARY_FLOAT = (
    "add sub mul div div_trunc div_floor remainder fmod pow maximum minimum fmax fmin atan2 hypot "
    "copysign nextafter eq ne lt le gt ge"
).split()
BINARY_INT = (
    "add sub mul maximum minimum bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge "
    "shift_left shift_right fmax fmin"
).split()
EDGE = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.5,
    -2.5,
    1e-3,
    100.0,
    float("inf"),
    -float("inf"),
    float("nan"),
    3.7,
    -3.7,
    0.25,
]

targets = pytest.mark.parametrize("target", TARGETS)


def floats(dtype, *shape):
    torch.manual_seed(1)
    x = torch.randn(*shape, dtype=torch.float64).flatten()
    k = min(x.numel(), len(EDGE))
    x[:k] = torch.tensor(EDGE[:k], dtype=torch.float64)
    return x.reshape(shape).to(dtype)


def ints(dtype, *shape):
    torch.manual_seed(2)
    info = torch.iinfo(dtype)
    x = torch.randint(max(info.min, -(2**40)), min(info.max, 2**40), shape, dtype=torch.int64).to(dtype)
    x.view(-1)[:2] = torch.tensor([info.min, info.max], dtype=dtype)
    return x


@targets
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary_float(name, dtype, target):
    if name in ("i1", "i1e", "i0e", "ndtri") and dtype in (torch.bfloat16, torch.float16):
        dtype = torch.float32
    x = floats(dtype, 3, 17)
    t = Tracer(x)
    y = getattr(t, name)(x)
    run(t.finish(y), [x], target)


@targets
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY_FLOAT)
def test_binary_float(name, dtype, target):
    if name == "nextafter" and dtype in (torch.bfloat16, torch.float16):
        dtype = torch.float32
    x = floats(dtype, 16, 16)
    y = x.t().contiguous()
    t = Tracer(x, y)
    run(t.finish(getattr(t, name)(x, y)), [x, y], target)


@targets
@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("name", BINARY_INT)
def test_binary_int(name, dtype, target):
    x, y = ints(dtype, 5, 7), ints(dtype, 7, 5).t().contiguous()
    if name.startswith("shift"):
        y = torch.arange(35, dtype=dtype).reshape(5, 7) % (dtype.itemsize * 8 + 2)
    t = Tracer(x, y)
    run(t.finish(getattr(t, name)(x, y)), [x, y], target)


@targets
@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("name", ["div_trunc", "div_floor", "remainder", "fmod"])
def test_integer_division(name, dtype, target):
    x, y = ints(dtype, 5, 7), ints(dtype, 7, 5).t().contiguous()
    y = torch.where((y == 0) | (y == -1), torch.full_like(y, 3), y)
    t = Tracer(x, y)
    run(t.finish(getattr(t, name)(x, y)), [x, y], target)


@targets
@pytest.mark.parametrize("name", ["div_trunc", "div_floor", "remainder", "fmod"])
def test_integer_division_by_zero_raises(name, target):
    x, y = torch.tensor([4, 5]), torch.tensor([1, 2])
    t = Tracer(x, y)
    compiled = run(t.finish(getattr(t, name)(x, y)), [x, y], target)
    with pytest.raises(RuntimeError):
        compiled([x, torch.tensor([1, 0])])


@targets
@pytest.mark.parametrize(
    "name", ["add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "lt", "maximum", "minimum"]
)
def test_bool(name, target):
    x, y = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
    t = Tracer(x, y)
    run(t.finish(getattr(t, name)(x, y), t.bitwise_not(x), t.logical_not(y)), [x, y], target)


@targets
@pytest.mark.parametrize("source", [*FLOATS, *INTS, torch.bool], ids=str)
def test_conversions(source, target):
    x = torch.tensor([0, 1, 2, 100, 7]).to(source)
    t = Tracer(x)
    outs = [t.convert_element_type(x, d) for d in [*FLOATS, *INTS, torch.bool]]
    run(t.finish(*outs), [x], target)


@targets
def test_half_precision_rounds_where_the_graph_converts(target):
    x = torch.randn(1000)
    t = Tracer(x)
    h = t.convert_element_type(x, torch.bfloat16)
    y = t.mul(t.convert_element_type(h, torch.float32), 3.0)
    z = t.convert_element_type(t.add(h, h), torch.float32)
    run(t.finish(y, z), [x], target, rtol=0, atol=0)


@targets
@pytest.mark.parametrize("number", [2, 0.5, -3.25, float("inf"), float("nan")])
def test_number_operands(number, target):
    x = floats(torch.float32, 40)
    t = Tracer(x)
    run(t.finish(t.add(x, number), t.sub(number, x), t.maximum(x, number), t.lt(x, number)), [x], target)


@targets
@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 2.5, float("nan")])
def test_pow_by_number(power, target):
    x = floats(torch.float32, 40)
    t = Tracer(x)
    run(t.finish(t.pow(x, power)), [x], target)


@targets
def test_where_ignores_the_other_side(target):
    c = torch.tensor([True, False, True])
    x, y = torch.tensor([1.0, float("nan"), 2.0]), torch.tensor([float("nan"), 3.0, float("inf")])
    t = Tracer(c, x, y)
    run(t.finish(t.where(c, x, y), t.where(c, x, 0.0), t.where(c, 1.5, y)), [c, x, y], target)


@targets
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 1), (5, 1, 4)])
def test_shapes(shape, target):
    x = torch.randn(shape)
    t = Tracer(x)
    run(t.finish(t.mul(t.exp(x), 2.0)), [x], target)


@targets
def test_strided_inputs(target):
    a = torch.randn(6, 8).t()
    b = torch.randn(16, 12)[::2, 1::2]
    c = torch.randn(6).expand(8, 6)
    d = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    t = Tracer(a, b, c, d)
    run(t.finish(t.add(a, t.mul(b, c)), t.exp(d), t.neg(a)), [a, b, c, d], target)


@targets
def test_overlapping_input(target):
    base = torch.randn(10)
    x = base.as_strided((4, 4), (2, 1))
    t = Tracer(x)
    run(t.finish(t.mul(x, 2.0)), [x], target)


@targets
def test_shared_subexpressions_grow_linearly(target):
    x = torch.randn(8)
    t = Tracer(x)
    y = x
    for _ in range(30):
        y = t.mul(t.add(y, y), 0.5)
    compiled = run(t.finish(y), [x], target)
    assert sum(len(p.ops) for k in compiled.kernels for p in k.phases) < 200


@targets
def test_clone_does_not_alias(target):
    x = torch.randn(4)
    t = Tracer(x)
    y = t.convert_element_type(x, torch.float32)
    compiled = run(t.finish(y), [x], target)
    assert compiled([x])[0].data_ptr() != x.data_ptr()


@targets
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_values_that_are_stored_and_used(dtype, target):
    x, y = torch.randn(3, 70).to(dtype), torch.randn(3, 70).to(dtype)
    t = Tracer(x, y)
    product = t.mul(x, y)
    run(t.finish(product, t.sum(product, (1,), dtype), t.exp(t.sub(product, x))), [x, y], target)


@targets
def test_erf_is_right_to_the_last_bits(target):
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-40])
    x = torch.cat([torch.linspace(-6, 6, 40001), special])
    t = Tracer(x)
    gm = t.finish(t.erf(x))
    got = compile_graph(gm, target=target)([x])[0]
    exact = torch.erf(x.double()).float()
    assert torch.equal(got.isnan(), exact.isnan())
    ulps = (got.nan_to_num().view(torch.int32).long() - exact.nan_to_num().view(torch.int32).long()).abs()
    assert ulps.max() <= 2
