"""Random small programs against eager."""

import torch
from check import TARGETS, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import Tracer

UNARY = ["neg", "exp", "tanh", "abs", "sigmoid", "sign", "floor", "sin"]
BINARY = ["add", "sub", "mul", "maximum", "minimum", "div"]


def step(t, draw, values):
    x = draw(st.sampled_from(values))
    rank = x.dim()
    kind = draw(
        st.sampled_from(
            [
                "unary",
                "unary",
                "binary",
                "binary",
                "number",
                "reduce",
                "view",
                "view",
                "broadcast",
                "cat",
                "pad",
                "where",
                "index",
                "scan",
                "mm",
                "var",
            ]
        )
    )
    if kind == "unary":
        return getattr(t, draw(st.sampled_from(UNARY)))(x)
    if kind == "binary":
        same = [v for v in values if v.shape == x.shape]
        return getattr(t, draw(st.sampled_from(BINARY)))(x, draw(st.sampled_from(same)))
    if kind == "number":
        return getattr(t, draw(st.sampled_from(["add", "mul", "sub"])))(x, draw(st.sampled_from([0.5, -2.0, 3])))
    if kind == "reduce" and rank:
        dims = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
        name = draw(st.sampled_from(["sum", "amax", "amin"]))
        r = getattr(t, name)(x, dims, *((torch.float64,) if name == "sum" else ()))
        if draw(st.booleans()):
            return t.broadcast_in_dim(r, tuple(x.shape), tuple(d for d in range(rank) if d not in dims))
        return r
    if kind == "var" and rank:
        return t.var_mean(x, (rank - 1,), 0.0)[draw(st.integers(0, 1))]
    if kind == "view" and rank:
        which = draw(st.sampled_from(["permute", "reshape", "slice", "flip"]))
        if which == "permute":
            return t.permute(x, tuple(draw(st.permutations(range(rank)))))
        if which == "reshape":
            n = x.numel()
            options = (
                [(n,)]
                + [(a, n // a) for a in (2, 3, 4) if n % a == 0]
                + [(2, 2, n // 4)] * (n % 4 == 0)
                + [tuple(x.shape) + (1,)]
            )
            return t.reshape(x, draw(st.sampled_from(options)))
        if which == "flip":
            return t.flip(x, (draw(st.integers(0, rank - 1)),))
        starts = tuple(draw(st.integers(0, max(n // 2, 0))) for n in x.shape)
        steps = tuple(draw(st.integers(1, 2)) for _ in x.shape)
        return t.slice(x, starts, tuple(x.shape), steps)
    if kind == "broadcast" and rank < 3:
        return t.broadcast_in_dim(x, (2, *x.shape), tuple(range(1, rank + 1)))
    if kind == "cat" and rank:
        same = [v for v in values if v.shape == x.shape]
        return t.cat((x, draw(st.sampled_from(same))), draw(st.integers(0, rank - 1)))
    if kind == "pad" and rank:
        return t.pad(
            x, 0.5, (1,) + (0,) * (rank - 1), (0,) * (rank - 1) + (draw(st.integers(-1, 2)) if x.shape[-1] > 1 else 1,)
        )
    if kind == "where":
        return t.where(t.gt(x, 0.0), x, 0.25)
    if kind == "scan" and rank:
        return t.cumsum(x, draw(st.integers(0, rank - 1)))
    if kind == "index" and rank and x.shape[0]:
        index = t.argmax(t.reshape(x, (x.shape[0], x.numel() // x.shape[0])), 0) if x.numel() else None
        if index is not None:
            return t.take_rows(x, index)
    if kind == "mm" and rank == 2 and x.numel():
        return t.mm(x, t.permute(x, (1, 0)))
    return t.mul(x, 0.5)


def small(v):
    return v.numel() <= 3000


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_programs(data):
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 5)))
    a = torch.randn(4, 6, dtype=torch.float64)
    if draw(st.booleans()):
        a = torch.randn(6, 4, dtype=torch.float64).t()
    b, c = torch.randn(4, 6, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    t = Tracer(a, b, c)
    values = [a, b, c]
    for _ in range(draw(st.integers(1, 12))):
        new = step(t, draw, values)
        if small(new):
            values.append(new)
    made = values[3:] or [t.neg(a)]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique_by=id)) if len(made) > 1 else made
    gm = t.finish(*outputs)
    for target in TARGETS:
        run(gm, [a, b, c], target, rtol=1e-7, atol=1e-9, stride=False)
