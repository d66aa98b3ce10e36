"""Metadata of ops on symbolic sizes is computed once for equal metadata, and never answers for other sizes."""

import pytest
import torch

import lamina_dynamo
from lamina_dynamo import fake as fakes


def _captured(fn, *args, dynamic=True):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    run = lamina_dynamo.optimize(backend, dynamic=dynamic)(fn)
    return graphs, run


def test_equal_layers_ask_once(monkeypatch):
    asked = []
    real = fakes._compute
    monkeypatch.setattr(fakes, "_compute", lambda f, i, a, k: (asked.append(f), real(f, i, a, k))[1])

    def program(x, count):
        for _ in range(count):
            x = torch.tanh(x.transpose(0, 1).contiguous().transpose(0, 1) * 2)
        return x

    counts = []
    for layers in (2, 8):
        asked.clear()
        _, run = _captured(lambda x, n=layers: program(x, n))
        x = torch.randn(4, 6)
        torch.testing.assert_close(run(x), program(x, layers))
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("first, second", [((4, 6), (5, 7)), ((4, 6), (6, 4)), ((3, 3), (3, 8))])
def test_two_sizes_are_not_taken_for_one(first, second):
    def program(x, y):
        a = x.reshape(-1).unsqueeze(0)
        b = y.reshape(-1).unsqueeze(0)
        return a.size(1), b.size(1), torch.cat([a, b], 1), x.t().contiguous(), y.t().contiguous()

    graphs, run = _captured(program)
    for shapes in ((first, second), (second, first), ((9, 2), (2, 5))):
        x, y = (torch.randn(s) for s in shapes)
        got, want = run(x, y), program(x, y)
        assert got[:2] == want[:2]
        for a, b in zip(got[2:], want[2:], strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()


def test_a_size_that_becomes_known_is_asked_for_again():
    def program(x, w):
        before = x * 2
        y = x @ w  # the second size of x is that of w from here on
        after = x * 2
        return y, before, after

    graphs, run = _captured(program)
    for n in (4, 7):
        x, w = torch.randn(n, 5), torch.randn(5, 3)
        for a, b in zip(run(x, w), program(x, w), strict=True):
            torch.testing.assert_close(a, b)


def test_translations_share_nothing():
    def program(x):
        return x.transpose(0, 1).reshape(-1) + 1

    results = []
    for shape in ((4, 6), (7, 2)):
        _, run = _captured(lambda x: program(x))
        x = torch.randn(shape)
        results.append((run(x), program(x)))
    for got, want in results:
        torch.testing.assert_close(got, want)
