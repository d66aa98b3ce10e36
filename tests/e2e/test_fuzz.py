"""Random small programs through `lamina.compile`: results, strides, aliasing, mutated inputs and gradients are eager's.

A program is Python source, written statement by statement; each statement runs in eager first, so that the next one
knows its operands. A failure prints the program.
"""

from __future__ import annotations

import linecache
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lamina

FLOATS = (torch.float32, torch.float64)
INTS = (torch.int64, torch.int32, torch.uint8, torch.int8)
DTYPES = (*FLOATS, torch.float32, torch.bfloat16, *INTS, torch.bool)
SHAPES = ((4,), (3, 4), (4, 3), (2, 3, 4), (1, 4), (3, 1), (), (0, 4), (8, 5), (2, 4, 1), (17,))
UNARY = ("neg", "exp", "tanh", "abs", "sigmoid", "relu", "sin", "square", "logical_not", "isnan", "sgn", "erf")
BINARY = ("+", "-", "*", "/", "<", "==", ">=")
FUNCTIONS = ("maximum", "minimum", "add", "sub", "eq", "logical_and", "atan2", "remainder", "bitwise_xor", "fmod")
REDUCE = ("sum", "amax", "amin", "mean", "prod", "any", "all", "argmax", "logsumexp", "var", "cumsum", "softmax")
CASTS = ("float", "double", "long", "int", "bool", "bfloat16")
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.bfloat16: 4e-2}


class Writer:
    """Draws one program. `values` maps names to eager values; `lines` is the body of the function."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.inputs: list[torch.Tensor] = []
        self.scope: dict = {"torch": torch, "F": torch.nn.functional}
        self.names: list[str] = []
        self.indent = 0
        for k in range(draw(st.integers(1, 3))):
            self.inputs.append(self.input_tensor())
            self.names.append(f"x{k}")
        self.scope.update(zip(self.names, arguments(self.inputs)[0], strict=True))
        self.count = 0

    def pick(self, options):
        return self.draw(st.sampled_from(tuple(options)))

    def input_tensor(self) -> torch.Tensor:
        shape, dtype = self.pick(SHAPES), self.pick(DTYPES)
        torch.manual_seed(self.draw(st.integers(0, 99)))
        t = torch.randint(-6, 7, shape).mul(0.25).to(torch.float64)
        t = (t * 4).long().to(dtype) if not dtype.is_floating_point else (t + torch.rand(shape) * 0.1).to(dtype)
        layout = self.pick(("plain", "plain", "transposed", "strided", "expanded"))
        if t.dim() >= 2 and layout == "transposed":
            t = t.mT.contiguous().mT
        elif t.dim() >= 1 and layout == "strided":
            t = torch.stack([t, t], -1)[..., 0]
        elif t.dim() == 2 and layout == "expanded" and t.numel():
            t = t[:1].expand(t.shape)
        return t.requires_grad_(dtype.is_floating_point and self.draw(st.booleans()))

    def attempt(self, text: str, name: str | None = None) -> bool:
        """Runs a statement in eager and keeps it if it works."""
        before = dict(self.scope)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(text, self.scope)
        except Exception:
            self.scope = before
            return False
        if name is not None and not isinstance(self.scope[name], torch.Tensor):
            self.scope = before
            return False
        if name is not None and self.scope[name].numel() > 4000:
            self.scope = before
            return False
        if name is not None and name not in self.names:
            self.names.append(name)
        self.lines += [line for line in text.splitlines()]
        return True

    def statement(self) -> None:
        a, b = self.pick(self.names), self.pick(self.names)
        t = self.scope[a]
        dim = self.draw(st.integers(-t.dim(), t.dim() - 1)) if t.dim() else 0
        number = self.pick((2, 0.5, -1, 3, True, 0))
        new = f"v{self.count}"
        kind = self.pick(("unary", "binary", "binary", "function", "reduce", "view", "view", "inplace", "inplace",
                          "write", "cat", "index", "cast", "where", "matmul", "loop", "branch", "data", "factory", "nn",
                          "scatter", "multi"))  # fmt: skip
        text = getattr(self, f"_{kind}")(a, b, t, dim, number, new)
        if text and self.attempt(text, new if text.startswith(f"{new} =") or f"\n    {new} =" in text else None):
            self.count += 1

    def _unary(self, a, b, t, dim, number, new):
        return f"{new} = torch.{self.pick(UNARY)}({a})"

    def _binary(self, a, b, t, dim, number, new):
        other = self.pick((b, b, repr(number)))
        left, right = self.pick(((a, other), (other, a)))
        return f"{new} = {left} {self.pick(BINARY)} {right}"

    def _function(self, a, b, t, dim, number, new):
        return f"{new} = torch.{self.pick(FUNCTIONS)}({a}, {b})"

    def _reduce(self, a, b, t, dim, number, new):
        name = self.pick(REDUCE)
        if name in ("cumsum", "softmax"):
            return f"{new} = torch.{name}({a}, {dim})"
        if name in ("sum", "mean", "prod", "argmax", "any", "all", "var") and self.draw(st.booleans()):
            return f"{new} = {a}.{name}()"
        return f"{new} = {a}.{name}({dim}, keepdim={self.draw(st.booleans())})"

    def _view(self, a, b, t, dim, number, new):
        other = self.draw(st.integers(-t.dim(), t.dim() - 1)) if t.dim() else 0
        return f"{new} = " + self.pick((
            f"{a}.transpose({dim}, {other})", f"{a}.unsqueeze({dim})", f"{a}.squeeze()", f"{a}.reshape(-1)",
            f"{a}.select({dim}, 0)", f"{a}.narrow({dim}, 1, 2)", f"{a}[..., ::2]", f"{a}[..., None]",
            f"{a}.expand(2, *{a}.shape)", f"{a}.flatten()", f"{a}.contiguous()", f"{a}.chunk(2, {dim})[-1]",
            f"{a}.view(-1, 2)", f"{a}.flip({dim})", f"{a}.unfold({dim}, 2, 1)", f"{a}.detach()", f"{a}.clone()",
            f"{a}.movedim({dim}, {other})", f"{a}.roll(1, {dim})", f"{a}.diagonal()", f"{a}.T",
        ))  # fmt: skip

    def _inplace(self, a, b, t, dim, number, new):
        return self.pick((
            f"{a}.add_({b})", f"{a}.mul_({number})", f"{a}.copy_({b})", f"{a}.fill_({number})", f"{a}.zero_()",
            f"{a}.sub_({number})", f"{a} += {b}", f"{a}.clamp_(-1, 1)", f"{a}.neg_()", f"{a}.masked_fill_({b} > 0, 1)",
            f"{a}.relu_()",
        ))  # fmt: skip

    def _write(self, a, b, t, dim, number, new):
        return self.pick((
            f"{a}[0] = {number}", f"{a}[..., -1] = {b}[..., 0]", f"{a}[..., ::2] += {number}",
            f"{a}[{a} > 0] = {number}", f"{a}[1:].mul_({number})", f"{a}.select({dim}, 0).copy_({b}.select(0, 0))",
            f"{a}[...] = {b}",
        ))  # fmt: skip

    def _cat(self, a, b, t, dim, number, new):
        return f"{new} = torch.{self.pick(('cat', 'stack'))}([{a}, {b}], {dim})"

    def _index(self, a, b, t, dim, number, new):
        n = t.shape[dim] if t.dim() else 1
        ids = self.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=4)) if n else [0]
        positive = [i % n for i in ids] if n else ids
        return f"{new} = " + self.pick((
            f"{a}[torch.tensor({ids})]", f"torch.index_select({a}, {dim}, torch.tensor({positive}))",
            f"torch.gather({a}, {dim}, torch.zeros_like({a}, dtype=torch.long))", f"{a}[..., torch.tensor({ids})]",
            f"torch.take({a}, torch.tensor({positive}))", f"torch.sort({a}, {dim}, stable=True)[0]",
            f"{a}[torch.arange(2), torch.tensor([0, -1])]",
        ))  # fmt: skip

    def _scatter(self, a, b, t, dim, number, new):
        n = t.shape[dim] if t.dim() else 1
        ids = self.draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=2)) if n else [0, 0]
        return f"{new} = " + self.pick((
            f"torch.index_add({a}, {dim}, torch.tensor({ids}), {a}.narrow({dim}, 0, 2))",
            f"torch.scatter({a}, {dim}, torch.zeros_like({a}, dtype=torch.long), {number})",
            f"torch.scatter_add({a}, {dim}, torch.zeros_like({a}, dtype=torch.long), {a})",
            f"torch.index_put({a}, (torch.tensor({ids}),), torch.ones((), dtype={a}.dtype), accumulate=True)",
            f"torch.index_fill({a}, {dim}, torch.tensor({ids}), {number})",
        ))  # fmt: skip

    def _cast(self, a, b, t, dim, number, new):
        return f"{new} = {a}.{self.pick(CASTS)}()"

    def _where(self, a, b, t, dim, number, new):
        return f"{new} = torch.where({a} > 0, {a}, {self.pick((b, number))})"

    def _matmul(self, a, b, t, dim, number, new):
        return f"{new} = " + self.pick((f"{a} @ {b}", f"{a} @ {a}.mT", f"{a}.mT @ {b}", f"F.linear({a}, {b})"))

    def _loop(self, a, b, t, dim, number, new):
        return self.pick((
            f"{new} = {a}\nfor i in range(3):\n    {new} = {new} * 0.5 + i",
            f"{new} = {a}\nfor row in {a}[:2]:\n    {new} = {new} + row",
            f"for i in range({a}.shape[0]):\n    {a}[i] *= i",
        ))  # fmt: skip

    def _branch(self, a, b, t, dim, number, new):
        return f"if {a}.dim() > 1 and {a}.shape[0] > {b}.dim():\n    {new} = {a} * 2\nelse:\n    {new} = {b} - 1"

    def _data(self, a, b, t, dim, number, new):
        return f"if {a}.sum() > 0:\n    {new} = {a} + 1\nelse:\n    {new} = {a} - 1"

    def _factory(self, a, b, t, dim, number, new):
        return f"{new} = " + self.pick((
            f"torch.ones_like({a})", f"torch.arange({a}.numel()).reshape({a}.shape) * {a}",
            f"torch.full((3, 4), {number})",
            f"{a}.new_zeros(4)", f"torch.tril({a})", f"torch.eye(4) + {a}",
        ))  # fmt: skip

    def _nn(self, a, b, t, dim, number, new):
        return f"{new} = " + self.pick((
            f"F.layer_norm({a}, {a}.shape[-1:])", f"F.gelu({a})", f"F.pad({a}, (1, 2), value={number})",
            f"F.log_softmax({a}, -1)", f"F.avg_pool1d({a}, 2)", f"F.max_pool1d({a}, 2)", f"F.silu({a})",
            f"F.mse_loss({a}, {b})", f"F.interpolate({a}, scale_factor=2)", f"F.normalize({a}, dim={dim})",
        ))  # fmt: skip

    def _multi(self, a, b, t, dim, number, new):
        return self.pick((
            f"{new}, w{self.count} = {a}.max({dim})", f"{new} = torch.topk({a}, 2, {dim})[0]",
            f"{new} = torch.var_mean({a}, {dim})[1]", f"{new}, *rest = {a}.unbind({dim})",
        )).replace(f"{new},", f"{new} = None\n{new},", 1)  # fmt: skip

    def source(self) -> str:
        """The whole function."""
        results = self.draw(st.lists(st.sampled_from(self.names), min_size=1, max_size=3))
        if self.names[-1] not in results:
            results.append(self.names[-1])
        body = "\n".join("    " + line for line in self.lines) or "    pass"
        parameters = ", ".join(f"x{k}" for k in range(len(self.inputs)))
        return f"def program({parameters}):\n{body}\n    return ({', '.join(results)},)\n"


@st.composite
def programs(draw):
    writer = Writer(draw)
    for _ in range(draw(st.integers(2, 10))):
        writer.statement()
    return writer.source(), writer.inputs


def arguments(inputs):
    """Fresh arguments with the strides of `inputs` (those with gradients are no leaves, so that programs may write to
    them), and the leaves."""
    leaves, made = [], []
    for t in inputs:
        fresh = strided_copy(t.detach())
        if t.requires_grad:
            leaves.append(fresh.requires_grad_())
            fresh = Copy.apply(fresh)
        made.append(fresh)
    return made, leaves


def strided_copy(t):
    """A copy with the same strides, also where elements overlap."""
    if any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride(), strict=True)):
        return t[:1].clone().expand(t.shape)
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t)


class Copy(torch.autograd.Function):
    """A copy with the same strides that is no leaf."""

    @staticmethod
    def forward(ctx, t):
        return strided_copy(t)

    @staticmethod
    def backward(ctx, grad):
        return grad


_files = 0


def build(source: str):
    """The function of a program, with its source where tracebacks find it."""
    global _files
    _files += 1
    file = f"<fuzz {_files}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope = {"torch": torch, "F": torch.nn.functional}
    exec(compile(source, file, "exec"), scope)
    return scope["program"]


def execute(function, inputs):
    """(outputs, inputs after the call, gradients or the backward's error)."""
    made, leaves = arguments(inputs)
    outputs = function(*made)
    roots = [o for o in (*outputs, *made) if isinstance(o, torch.Tensor) and o.requires_grad]
    grads = ()
    if roots and leaves:
        try:
            total = sum((r * 0.5).sum().double() for r in roots)
            grads = torch.autograd.grad(total, leaves, allow_unused=True)
        except RuntimeError as e:
            grads = type(e)
    return outputs, made, grads


def storages(tensors):
    """For each tensor, the first tensor it shares memory with: the aliasing of results and inputs."""
    ids = [t.untyped_storage()._cdata if t.numel() else k for k, t in enumerate(tensors)]
    return [ids.index(i) for i in ids]


def same(got, want, what, strides=True):
    assert got.dtype is want.dtype, f"{what}: dtype {got.dtype}, eager {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, eager {tuple(want.shape)}"
    assert not strides or got.stride() == want.stride(), (
        f"{what}: stride {got.stride()}, eager {want.stride()} of {tuple(want.shape)}"
    )
    if want.dtype in TOLERANCE:
        tolerance = TOLERANCE[want.dtype]
        scale = want.detach().double()
        scale = float(scale[scale.isfinite()].abs().max()) if scale.isfinite().any() else 1.0
        assert torch.allclose(got, want, tolerance, tolerance * max(scale, 1.0) * 0.1, equal_nan=True), (
            f"{what}: {got.flatten()[:8].tolist()}, eager {want.flatten()[:8].tolist()}"
        )
    else:
        assert torch.equal(got, want), f"{what}: {got.flatten()[:8].tolist()}, eager {want.flatten()[:8].tolist()}"


def check(source, inputs, **options):
    """Compares one program with eager; an error of eager's backward must be one of the compiled program's, too."""
    warnings.simplefilter("ignore")
    function = build(source)
    want = execute(function, inputs)
    lamina.reset()
    got = execute(lamina.compile(function, **options), inputs)
    for k, (g, w) in enumerate(zip(got[0], want[0], strict=True)):
        same(g, w, f"result {k}")
        assert g.requires_grad == w.requires_grad, f"result {k}: requires_grad {g.requires_grad}"
    for k, (g, w) in enumerate(zip(got[1], want[1], strict=True)):
        same(g, w, f"input {k} after the call")
    assert storages([*got[0], *got[1]]) == storages([*want[0], *want[1]]), "aliasing of results and inputs"
    if isinstance(want[2], type):
        return  # eager refuses to use its own results; compiled need not
    assert not isinstance(got[2], type), f"backward raises {got[2]}"
    for k, (g, w) in enumerate(zip(got[2], want[2], strict=True)):
        assert (g is None) == (w is None), f"gradient {k}: {g}, eager {w}"
        if w is not None:
            same(g, w, f"gradient {k}", strides=False)


@settings(
    max_examples=20, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)  # fmt: skip
@given(programs())
def test_random_programs(program):
    check(*program)


@pytest.mark.slow
@settings(
    max_examples=400, deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)  # fmt: skip
@given(programs())
def test_many_random_programs(program):
    check(*program)
