"""Generated C++ kernels against eager: every op, dtype, tail length, special values, all reductions in all
directions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from cpp_harness import BufferArg, KernelSpec, LoopVar, Op, Phase, compile_kernels, pointwise, reduction  # noqa: E402

from lamina_inductor.build_cache import BuildCache
from lamina_inductor.index import const, symbol

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
INF, NAN = float("inf"), float("nan")
LENGTHS = [0, 1, 7, 8, 15, 16, 17, 31, 33, 100]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return BuildCache(tmp_path_factory.mktemp("units"))


def _values(dtype: torch.dtype, n: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, (n,), generator=g).bool()
    if dtype.is_floating_point:
        x = torch.randn(n, generator=g, dtype=torch.float64) * 3
        special = torch.tensor(
            [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, 1e-40, -1e-40, 2.5, -3.5], dtype=torch.float64
        )
        x[: min(n, 12)] = special[torch.randperm(12, generator=g)][: min(n, 12)]
        return x.to(dtype)
    info = torch.iinfo(dtype)
    x = torch.randint(max(info.min, -100), min(info.max, 100) + 1, (n,), generator=g).to(dtype)
    special = torch.tensor([0, 1, info.max, info.min, 2, 3], dtype=dtype)
    x[: min(n, 6)] = special[torch.randperm(6, generator=g)][: min(n, 6)]
    return x


UNARY = {
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "square": torch.square, "reciprocal": torch.reciprocal, "floor": torch.floor,  # noqa: E501
    "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round, "bitwise_not": torch.bitwise_not, "logical_not": torch.logical_not,  # noqa: E501
    "isnan": torch.isnan, "isinf": torch.isinf, "signbit": torch.signbit, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1,  # noqa: E501
    "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,  # noqa: E501
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh,  # noqa: E501
    "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh, "erf": torch.erf,  # noqa: E501
    "erfc": torch.erfc, "sigmoid": torch.sigmoid, "lgamma": torch.lgamma,
}  # fmt: skip
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.true_divide, "floordiv": torch.floor_divide,
    "remainder": torch.remainder, "fmod": torch.fmod, "maximum": torch.maximum, "minimum": torch.minimum, "pow": torch.pow,  # noqa: E501
    "atan2": torch.atan2, "hypot": torch.hypot, "copysign": torch.copysign, "nextafter": torch.nextafter,
    "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le,  # noqa: E501
    "gt": torch.gt, "ge": torch.ge, "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,  # noqa: E501
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}  # fmt: skip
BOOL_RESULT = {
    "isnan",
    "isinf",
    "signbit",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
}
FLOAT_ONLY = {
    "reciprocal", "floor", "ceil", "trunc", "round", "truediv", "atan2", "hypot", "copysign", "nextafter", "isnan", "isinf", "signbit",  # noqa: E501
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",  # noqa: E501
    "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "lgamma",
}  # fmt: skip
INT_ONLY = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shl", "shr", "truncdiv"}


def _close(ours: torch.Tensor, eager: torch.Tensor, note: str, ulps: float = 4) -> None:
    assert ours.dtype is eager.dtype, note
    if not eager.dtype.is_floating_point:
        assert torch.equal(ours, eager), f"{note}: {ours} vs {eager}"
        return
    eps = torch.finfo(eager.dtype).eps
    tiny = torch.finfo(eager.dtype).smallest_normal
    torch.testing.assert_close(
        ours, eager, rtol=ulps * eps, atol=ulps * tiny * eps, equal_nan=True, msg=lambda m: f"{note}: {m}"
    )


def _dtypes(name: str) -> list[torch.dtype]:
    if name in FLOAT_ONLY:
        return FLOATS
    if name in INT_ONLY:
        return INTS + ([torch.bool] if name.startswith("bitwise") else [])
    out = FLOATS + INTS
    if name in BOOL_RESULT or name in ("maximum", "minimum"):
        out = [*out, torch.bool]
    return [d for d in out if not (name == "neg" and d is torch.bool)]


@pytest.mark.parametrize("width", [None, 32, 0])
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_pointwise_op(name, width, cache):
    arity = 1 if name in UNARY else 2
    eager = UNARY.get(name) or BINARY[name]
    dtypes = _dtypes(name) if width is None else _dtypes(name)[:2]
    specs = [pointwise(name, [d] * arity, torch.bool if name in BOOL_RESULT else d) for d in dtypes]
    for dtype, kernel in zip(dtypes, compile_kernels(specs, cache, width), strict=True):
        for n in LENGTHS if width is None else (17, 100):
            args = [_values(dtype, n, seed=k) for k in range(arity)]
            if name in ("shl", "shr"):
                args[1] = args[1].remainder(dtype.itemsize * 8)
            if name in ("floordiv", "remainder", "fmod", "truncdiv", "pow") and not dtype.is_floating_point:
                args[1] = torch.where(args[1] == 0, torch.ones_like(args[1]), args[1]).abs().clamp(1, 5)
            if name in ("nextafter",) and dtype in (torch.bfloat16, torch.float16):
                continue
            if (
                name in ("remainder", "fmod", "floordiv") and dtype.is_floating_point
            ):  # eager's vector fmod gives NaN for subnormal divisors
                args[1] = torch.where(args[1].abs() < 1e-30, torch.ones_like(args[1]), args[1])
            wide = [a.float() if dtype in (torch.bfloat16, torch.float16) else a for a in args]
            want = eager(*wide)
            want = want if name in BOOL_RESULT else want.to(dtype)
            out = torch.full((n + 3,), 77).to(want.dtype)
            assert kernel(*args, out[:n], n) == 0
            assert bool((out[n:] == torch.tensor(77).to(want.dtype)).all()), "wrote behind the end"
            _close(out[:n], want, f"{name} {dtype} n={n}")


def test_integer_division_by_zero_does_not_trap(cache):
    names = ["floordiv", "remainder", "fmod", "truncdiv"]
    a = torch.tensor([5, -5, torch.iinfo(torch.int32).min, 0], dtype=torch.int32)
    b = torch.tensor([0, 0, -1, 0], dtype=torch.int32)
    for kernel in compile_kernels([pointwise(n, [torch.int32] * 2, torch.int32) for n in names], cache):
        assert kernel(a, b, torch.empty_like(a), 4) == 0


@pytest.mark.parametrize("target", FLOATS + INTS + [torch.bool])
def test_conversion(target, cache):
    sources = FLOATS + INTS + [torch.bool]
    kernels = compile_kernels([pointwise("to_dtype", [s], target) for s in sources], cache)
    for source, kernel in zip(sources, kernels, strict=True):
        x = _values(source, 50)
        if source.is_floating_point and not target.is_floating_point and target is not torch.bool:
            x = x.nan_to_num(3.0, 2.0, -2.0)
            if target is torch.uint8:
                x = x.abs()
        out = torch.empty(50, dtype=target)
        kernel(x, out, 50)
        _close(out, x.to(target), f"{source} to {target}")


def test_where_and_round_to(cache):
    s0 = symbol("s0", lo=0)
    i0 = symbol("i0", s0)
    f = torch.float32
    c = Op("load", ("c", i0, None), torch.bool)
    a, b = Op("load", ("a", i0, None), f), Op("load", ("b", i0, None), f)
    w = Op("where", (c, a, b), f)
    r = Op("round_to", (w, torch.bfloat16), f)
    store = Op("store", ("out", i0, r, None, None), f)
    buffers = (
        BufferArg("c", torch.bool, "in", s0),
        BufferArg("a", f, "in", s0),
        BufferArg("b", f, "in", s0),
        BufferArg("out", f, "out", s0),
    )
    [k] = compile_kernels(
        [KernelSpec("w", (LoopVar("i0", s0),), (Phase((), (c, a, b, w, r, store)),), buffers, ("s0",))], cache
    )
    x, y, m = torch.randn(45), torch.randn(45), torch.rand(45) > 0.5
    out = torch.empty(45)
    k(m, x, y, out, 45)
    assert torch.equal(out, torch.where(m, x, y).bfloat16().float())


ALONG = ["row", "column", "all"]
SHAPES = [(5, 3), (33, 65), (3, 1000), (700, 19), (1, 1), (200, 300)]


@pytest.mark.parametrize("along", ALONG)
@pytest.mark.parametrize(
    "kind",
    ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "welford", "softmax_stats", "max_with_index"],
)
def test_reduction(kind, along, cache):
    dim = {"row": (1,), "column": (0,), "all": (0, 1)}[along]
    cases = []
    for shape in SHAPES:
        for source in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool):
            if source is torch.bool and kind not in ("any", "all"):
                continue
            if kind in ("welford", "softmax_stats") and not source.is_floating_point:
                continue
            if kind in ("any", "all") and source is not torch.bool:
                continue
            cases.append((shape, source))
    items = {"welford": 3, "softmax_stats": 2, "max_with_index": 2}.get(kind, 1)
    specs = []
    for shape, source in cases:
        result = torch.int64 if kind.startswith("arg") else source if source is not torch.bfloat16 else torch.float32
        specs.append(reduction(kind, source, result, along, shape, items))
    for (shape, source), kernel in zip(cases, compile_kernels(specs, cache), strict=True):
        g = torch.Generator().manual_seed(1)
        if source is torch.bool:
            x = torch.rand(shape, generator=g) > (0.02 if kind == "all" else 0.98)
        elif source.is_floating_point:
            x = torch.randn(shape, generator=g, dtype=torch.float64).to(source)
            if kind == "prod":
                x = (x * 0.01 + 1).to(source)
        else:
            x = torch.randint(-5, 6, shape, generator=g)
        n = {"row": shape[0], "column": shape[1], "all": 1}[along]
        with_index = "arg" in kind or "index" in kind
        outs = []
        for k in range(items):
            dtype = (
                torch.int64
                if (with_index and (k == 1 or items == 1))
                else source
                if source is not torch.bfloat16
                else torch.float32
            )
            outs.append(torch.empty(n, dtype=dtype))
        variants = [x]
        if source.is_floating_point and kind in ("max", "min", "argmax", "max_with_index", "sum"):
            y = x.clone()
            y.view(-1)[y.numel() // 2] = NAN
            z = x.clone()
            z.view(-1)[-1] = INF
            variants += [y, z, torch.full_like(x, -INF)]
        for v in variants:
            assert kernel(v, *outs) == 0
            wide = v.double() if source.is_floating_point else v
            note = f"{kind} {along} {shape} {source}"
            tol = dict(
                rtol=1e-5 if source is not torch.float64 else 1e-12,
                atol=1e-4 if source is not torch.float64 else 1e-10,
                equal_nan=True,
            )
            if kind == "sum":
                want = wide.sum(dim)
            elif kind == "prod":
                want = wide.flatten().prod() if along == "all" else wide.prod(dim[0])
                tol["rtol"] = 1e-3
            elif kind in ("max", "min"):
                want = getattr(wide, "a" + kind)(dim)
            elif kind in ("any", "all"):
                want = getattr(wide.flatten(), kind)() if along == "all" else getattr(wide, kind)(dim[0])
            elif kind in ("argmax", "argmin"):
                want = getattr(torch, kind)(wide.flatten() if along == "all" else wide, 0 if along == "all" else dim[0])
            elif kind == "max_with_index":
                got_max, got_at = outs
                at = torch.argmax(wide.flatten() if along == "all" else wide, 0 if along == "all" else dim[0])
                assert torch.equal(got_at.view(-1), at.view(-1)), note
                torch.testing.assert_close(
                    got_max.double(), wide.amax(dim).reshape(n).double(), equal_nan=True, rtol=0, atol=0
                )
                continue
            elif kind == "welford":
                mean = wide.mean(dim).reshape(n)
                m2 = ((wide - wide.mean(dim, keepdim=True)) ** 2).sum(dim).reshape(n)
                torch.testing.assert_close(outs[0].double(), mean, **tol, msg=lambda m, note=note: note + m)
                torch.testing.assert_close(
                    outs[1].double(), m2, rtol=1e-4, atol=1e-4, msg=lambda m, note=note: note + m
                )
                assert bool((outs[2] == x.numel() / n).all())
                continue
            else:
                top = wide.amax(dim, keepdim=True)
                torch.testing.assert_close(outs[0].double(), top.reshape(n), **tol, msg=lambda m, note=note: note + m)
                torch.testing.assert_close(
                    outs[1].double(), (wide - top).exp().sum(dim).reshape(n), **tol, msg=lambda m, note=note: note + m
                )
                continue
            want = want.reshape(n)
            if source.is_floating_point and not want.dtype == torch.int64:
                torch.testing.assert_close(outs[0].double(), want.double(), **tol, msg=lambda m, note=note: note + m)
            else:
                assert torch.equal(outs[0].to(want.dtype), want), f"{note} {outs[0]} {want}"


@pytest.mark.parametrize("kind", ["sum", "prod", "cummax", "cummin", "logcumsumexp"])
@pytest.mark.parametrize("along", ["row", "column"])
def test_scan(kind, along, cache):
    rows, cols = 9, 37
    f = torch.float32
    n_scan, n_outer = (cols, rows) if along == "row" else (rows, cols)
    i, r = symbol("i0", n_outer), symbol("r0", n_scan)
    where = i * cols + r if along == "row" else r * cols + i
    load = Op("load", ("x", where, None), f)
    ops = [load]
    if kind.startswith("cum"):
        index = Op("index_expr", (r,), torch.int64)
        scan = Op("scan", (load, kind, index), f)
        first, second = Op("item", (scan, 0), f), Op("item", (scan, 1), torch.int64)
        ops += [
            index,
            scan,
            first,
            second,
            Op("store", ("out", where, first, None, None), f),
            Op("store", ("at", where, second, None, None), torch.int64),
        ]
    else:
        scan = Op("scan", (load, kind, None), f)
        ops += [scan, Op("store", ("out", where, scan, None, None), f)]
    size = const(rows * cols)
    buffers = [BufferArg("x", f, "in", size), BufferArg("out", f, "out", size)]
    if kind.startswith("cum"):
        buffers.append(BufferArg("at", torch.int64, "out", size))
    spec = KernelSpec(
        "scan",
        (LoopVar("i0", const(n_outer)),),
        (Phase((LoopVar("r0", const(n_scan), "scan"),), tuple(ops)),),
        tuple(buffers),
    )
    [kernel] = compile_kernels([spec], cache)
    dim = 1 if along == "row" else 0
    for x in (torch.randn(rows, cols), torch.randint(0, 3, (rows, cols)).float()):
        out, at = torch.empty_like(x), torch.empty(rows, cols, dtype=torch.int64)
        kernel(x, out, *([at] if kind.startswith("cum") else []))
        if kind.startswith("cum"):
            values, indices = getattr(torch, kind)(x, dim)
            assert torch.equal(out, values) and torch.equal(at, indices)
        else:
            name = {"sum": "cumsum", "prod": "cumprod"}.get(kind, kind)
            torch.testing.assert_close(out, getattr(torch, name)(x, dim), rtol=1e-5, atol=1e-5)


def test_transposed_strided_and_broadcast_loads(cache):
    rows, cols = 37, 45
    f = torch.float32
    i, j = symbol("i0", rows), symbol("i1", cols)
    a = Op("load", ("a", j * rows + i, None), f)
    b = Op("load", ("b", i * 2, None), f)
    c = Op("load", ("c", j, None), f)
    total = Op("add", (Op("add", (a, b), f), c), f)
    store = Op("store", ("out", i * cols + j, total, None, None), f)
    ops = (a, b, c, total.args[0], total, store)
    buffers = (
        BufferArg("a", f, "in", const(rows * cols)),
        BufferArg("b", f, "in", const(2 * rows)),
        BufferArg("c", f, "in", const(cols)),
        BufferArg("out", f, "out", const(rows * cols)),
    )
    [k] = compile_kernels(
        [KernelSpec("t", (LoopVar("i0", const(rows)), LoopVar("i1", const(cols))), (Phase((), ops),), buffers)], cache
    )
    x, y, z = torch.randn(cols, rows), torch.randn(2 * rows), torch.randn(cols)
    out = torch.empty(rows, cols)
    k(x, y, z, out)
    assert torch.equal(out, x.t() + y[::2, None] + z)


def test_gather_checks_bounds_and_scatter_adds_in_order(cache):
    n, m, d = 50, 7, 20
    f = torch.float32
    i, j = symbol("i0", n), symbol("i1", d)
    at = Op("load", ("at", i, None), torch.int64)
    zero = Op("constant", (0,), torch.int64)
    size = Op("constant", (m,), torch.int64)
    low, high = Op("ge", (at, zero), torch.bool), Op("lt", (at, size), torch.bool)
    ok = Op("logical_and", (low, high), torch.bool)
    check = Op("check", (ok, "index out of range", "IndexError", None), torch.bool)
    where = Op("indirect", (at, "t0"), torch.int64)
    row = symbol("t0", m)
    load = Op("load", ("w", row * d + j, None), f)
    store = Op("store", ("out", i * d + j, load, None, None), f)
    ops = (at, zero, size, low, high, ok, check, where, load, store)
    buffers = (
        BufferArg("at", torch.int64, "in", const(n)),
        BufferArg("w", f, "in", const(m * d)),
        BufferArg("out", f, "out", const(n * d)),
    )
    gather = KernelSpec("g", (LoopVar("i0", const(n)), LoopVar("i1", const(d))), (Phase((), ops),), buffers)
    grad = Op("load", ("g", i * d + j, None), f)
    add = Op("store", ("w", row * d + j, grad, "add", None), f)
    buffers = (
        BufferArg("at", torch.int64, "in", const(n)),
        BufferArg("g", f, "in", const(n * d)),
        BufferArg("w", f, "inout", const(m * d)),
    )
    scatter = KernelSpec(
        "s", (LoopVar("i0", const(n), "serial"), LoopVar("i1", const(d))), (Phase((), (at, where, grad, add)),), buffers
    )
    kg, ks = compile_kernels([gather, scatter], cache)
    idx, w = torch.randint(0, m, (n,)), torch.randn(m, d)
    out = torch.empty(n, d)
    assert kg(idx, w, out) == 0 and torch.equal(out, w[idx])
    idx[3] = 1 << 40
    assert kg(idx, w, out) == 1
    idx[3] = 2
    g, acc = torch.randn(n, d), torch.zeros(m, d)
    assert ks(idx, g, acc) == 0
    torch.testing.assert_close(acc, torch.zeros(m, d).index_add(0, idx, g))


def test_masked_load_reads_nothing_outside(cache):
    n, pad = 29, 3
    f = torch.float32
    i = symbol("i0", n + 2 * pad)
    at = Op("index_expr", (i - pad,), torch.int64)
    zero, size = Op("constant", (0,), torch.int64), Op("constant", (n,), torch.int64)
    ok = Op("logical_and", (Op("ge", (at, zero), torch.bool), Op("lt", (at, size), torch.bool)), torch.bool)
    load = Op("load", ("x", i - pad, ok), f)
    store = Op("store", ("out", i, load, None, None), f)
    ops = (at, zero, size, *ok.args, ok, load, store)
    buffers = (BufferArg("x", f, "in", const(n)), BufferArg("out", f, "out", const(n + 2 * pad)))
    [k] = compile_kernels([KernelSpec("p", (LoopVar("i0", const(n + 2 * pad)),), (Phase((), ops),), buffers)], cache)
    x, out = torch.randn(n), torch.empty(n + 2 * pad)
    k(x, out)
    assert torch.equal(out, torch.nn.functional.pad(x, (pad, pad)))


def test_sum_error_is_at_most_eagers(cache):
    x = torch.rand(1, 3_000_000)
    out = torch.empty(1)
    [k] = compile_kernels([reduction("sum", torch.float32, torch.float32, "all", (1, 3_000_000))], cache)
    k(x, out)
    exact = x.double().sum()
    assert abs(out.double() - exact) <= abs(x.sum().double() - exact) + 0.25


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_full_sum_is_the_same_for_all_thread_counts(threads, cache):
    [k] = compile_kernels([reduction("sum", torch.float32, torch.float32, "all", (1, 400_000))], cache)
    x, one, many = torch.randn(1, 400_000), torch.empty(1), torch.empty(1)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        k(x, one)
        torch.set_num_threads(threads)
        k(x, many)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, many)


def test_only_one_openmp_runtime(cache):
    [k] = compile_kernels([pointwise("exp", [torch.float32], torch.float32)], cache)
    x = torch.randn(1 << 20)
    out = torch.empty_like(x)
    k(x, out, 1 << 20)
    maps = Path("/proc/self/maps")
    if maps.exists():
        loaded = {
            line.split()[-1]
            for line in maps.read_text().splitlines()
            if "libgomp" in line or "libiomp" in line or "libomp" in line
        }
        assert len(loaded) <= 1, loaded
