"""Strings that mention symbolic numbers: no break, no guard on the number unless the program looks at the string."""

from __future__ import annotations

import pytest
import torch

import lamina_dynamo
from lamina_dynamo.counters import reset_counters


def unread(x):
    h, w = x.shape
    torch._assert(h > 1, f"height {h} of {h, w} is too small, {w:>4d} {h!r:}" if h < 0 else f"height {h:03d}")
    message = f"{h}x{w}"
    return x + 1 if message is not None else x


def returned(x):
    return x * 2, f"<{x.shape[0]:>5}|{x.shape[0] + 1}>", [f"{x.shape[1]}"]


def printed(x):
    print(f"rows: {x.shape[0]}", x.shape[0])
    return x + 1


@pytest.mark.parametrize("fn", [unread, returned, printed])
def test_one_graph_for_all_sizes(fn, capsys):
    reset_counters()
    compiled = lamina_dynamo.optimize("eager", dynamic=True)(fn)
    for n in (3, 5, 8):
        x = torch.randn(n, 4)
        want, said = fn(x), capsys.readouterr().out
        got = compiled(x)
        assert capsys.readouterr().out == said
        torch.testing.assert_close(got[0] if fn is returned else got, want[0] if fn is returned else want)
        assert fn is not returned or got[1:] == want[1:]
    counters = lamina_dynamo.counters()
    assert not counters["breaks"]
    assert counters["graphs"] == 1


def looked_at(x):
    text = f"layer {x.shape[0]}"
    table = {"layer 3": 10, "layer 5": 20}
    if text.endswith("3") and "yer" in text and len(text) == 7:
        return x + table[text]
    return x - table.get(text, 1), text + "!", text == "layer 5", hash(text), text[-1], repr(text), str(x.shape[0])


def test_what_the_program_reads_of_it_is_guarded():
    compiled = lamina_dynamo.optimize("eager", dynamic=True, fullgraph=True)(looked_at)
    for n in (3, 5, 8, 3, 5):
        x = torch.randn(n, 4)
        got, want = compiled(x), looked_at(x)
        if n == 3:
            assert torch.equal(got, want)
        else:
            assert torch.equal(got[0], want[0])
            assert got[1:] == want[1:]
