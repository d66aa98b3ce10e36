"""Frames that are left often: many live locals, nothing captured, comprehensions that eager runs; views in place."""

from __future__ import annotations

import torch

import lamina_dynamo


def breaks() -> int:
    return sum(lamina_dynamo.counters()["breaks"].values())


def many_locals(x, a, b, c, d):
    p, q, r, s, t, u, v, w = x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7
    cells = [a + b + c + d for _ in range(2)]

    def inner():
        lamina_dynamo.graph_break()
        return [a]

    out = inner()
    return out, cells, p + q + r + s + t + u + v + w, [a, b, c, d]


def test_leaving_a_frame_with_many_locals_and_cells():
    x = torch.randn(3)
    want = many_locals(x, 1, 2, 3, 4)
    got = lamina_dynamo.optimize("eager")(many_locals)(x, 1, 2, 3, 4)
    assert got[0] == want[0] and got[1] == want[1] and got[3] == want[3]
    assert torch.equal(got[2], want[2])


def no_tensors(x, log):
    for word in ("a", "b"):
        lamina_dynamo.graph_break()
        log.append(word)
    lamina_dynamo.graph_break()
    log.append("c")
    lamina_dynamo.graph_break()
    log.append("d")
    lamina_dynamo.graph_break()
    log.append("e")
    lamina_dynamo.graph_break()
    log.append("f")
    lamina_dynamo.graph_break()
    return called(x)


def called(x):
    return x.sin() + 1


def test_a_frame_that_only_breaks_is_left_to_eager():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    x, log = torch.randn(3), []
    before = breaks()
    assert torch.equal(lamina_dynamo.optimize(backend)(no_tensors)(x, log), called(x))
    assert log == ["a", "b", "c", "d", "e", "f"]
    assert breaks() - before <= 6  # of 8
    assert len(graphs) == 1  # what it calls is captured


@lamina_dynamo.disable(recursive=False)
def in_eager(xs):
    return [called(x) for x in xs]


def test_comprehensions_of_eager_frames_are_no_frames_of_their_own():
    xs = [torch.randn(3) for _ in range(4)]
    before = breaks()
    got = lamina_dynamo.optimize("eager")(lambda: in_eager(xs))()
    assert all(torch.equal(a, called(x)) for a, x in zip(got, xs, strict=True))
    assert breaks() - before == 1  # the disabled call


def views_in_place(x):
    y = x + 1
    v = y[0]
    same = y
    z = y.unsqueeze_(0)
    y.transpose_(1, 2)
    v.mul_(5)
    y.add_(3)
    t = x.sin()
    t.t_()
    return z is y, same is y, y, v, same, t, t.unsqueeze(0).squeeze_()


def test_views_in_place():
    for x in (torch.randn(2, 3), torch.randn(2, 3, requires_grad=True)):
        got = lamina_dynamo.optimize("eager", fullgraph=True)(views_in_place)(x)
        for a, b in zip(got, views_in_place(x), strict=True):
            assert a is b if isinstance(b, bool) else torch.equal(a, b) and a.stride() == b.stride()


def test_views_in_place_of_an_argument():
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    lamina_dynamo.optimize("eager")(lambda x: x.unsqueeze_(0) + 1)(x)
    assert x.shape == (1, 2, 3)
    assert lamina_dynamo.optimize("eager")(lambda y: y.t_())(y) is y and y.shape == (3, 2)
