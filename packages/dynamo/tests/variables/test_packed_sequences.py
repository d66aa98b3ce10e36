"""Packed sequences: packing, recurrent layers and padding in one graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
from torch.nn.utils import rnn

import lamina_dynamo
from lamina_dynamo.errors import GraphBreakError

LAYERS = {
    "lstm": lambda: nn.LSTM(4, 5, batch_first=True),
    "projected lstm": lambda: nn.LSTM(4, 6, 2, proj_size=3, bidirectional=True),
    "gru": lambda: nn.GRU(4, 5, 2, bidirectional=True),
    "rnn": lambda: nn.RNN(4, 5, nonlinearity="relu", bias=False),
}


def program_of(layer, **packing):
    def program(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=layer.batch_first, **packing)
        out, state = layer(packed)
        padded, given = rnn.pad_packed_sequence(out, batch_first=layer.batch_first, padding_value=-1.0)
        return padded, given, state

    return program


def whole(program):
    return lamina_dynamo.optimize("eager", fullgraph=True)(program)


def run(program, layer, x, lengths):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    padded, given, state = program(x, lengths)
    leaves = [padded, *(state if isinstance(state, tuple) else [state])]
    sum(t.sum() for t in leaves).backward()
    return [*leaves, given, x.grad, *[p.grad.clone() for p in layer.parameters()]]


def compare(want, got):
    for a, b in zip(want, got, strict=True):
        assert (a.shape, a.dtype, a.stride(), a.requires_grad) == (b.shape, b.dtype, b.stride(), b.requires_grad)
        torch.testing.assert_close(b, a)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("sorted_", [True, False])
def test_layers(name, sorted_):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    program = program_of(layer, enforce_sorted=sorted_)
    compiled = whole(program)
    cases = ([4, 3, 1], [3, 3, 3], [2, 1, 1]) if sorted_ else ([1, 4, 2], [2, 3, 3], [1, 1, 4])
    for lengths in cases:
        x = torch.randn((3, 4, 4) if layer.batch_first else (4, 3, 4))
        n = torch.tensor(lengths)
        compare(run(program, layer, x, n), run(compiled, layer, x, n))


def test_what_it_gives_goes_on():
    torch.manual_seed(0)
    lstm, head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 2)

    def program(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded, _ = rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        last = padded[torch.arange(len(lengths)), lengths - 1]
        return head(last), padded.amax(1)

    x, lengths = torch.randn(3, 4, 4), torch.tensor([2, 4, 1])
    compare(program(x, lengths), whole(program)(x, lengths))


def test_lengths_in_a_list_and_a_state():
    torch.manual_seed(0)
    gru = nn.GRU(4, 5)

    def program(x, h):
        out, h = gru(rnn.pack_padded_sequence(x, [4, 2]), h)
        return out.data * 2, h, rnn.pad_packed_sequence(out)[0]

    x, h = torch.randn(4, 2, 4), torch.randn(1, 2, 5)
    compare(program(x, h), whole(program)(x, h))


def test_a_packed_result():
    def program(x, lengths):
        return rnn.pack_padded_sequence(x * 2, lengths, enforce_sorted=False)

    x, lengths = torch.randn(4, 3, 2), torch.tensor([1, 4, 2])
    want, got = program(x, lengths), whole(program)(x, lengths)
    assert type(got) is rnn.PackedSequence
    for a, b in zip(want, got, strict=True):
        assert torch.equal(a, b)


def test_bad_lengths_are_eagers_error():
    layer = nn.RNN(4, 5)
    program = program_of(layer)
    for lengths in ([1, 4, 2], [4, 3, 0], [5, 1, 1]):
        for call in (program, lamina_dynamo.optimize("eager")(program), whole(program)):
            with pytest.raises(RuntimeError, match="[Ll]ength"):
                call(torch.randn(4, 3, 4), torch.tensor(lengths))


def test_sequences_packed_outside_are_left_to_eager():
    torch.manual_seed(0)
    layer = nn.LSTM(4, 5)

    def program(packed):
        return layer(packed)[0].data * 2

    packed = rnn.pack_padded_sequence(torch.randn(4, 3, 4), torch.tensor([4, 2, 1]))
    torch.testing.assert_close(lamina_dynamo.optimize("eager")(program)(packed), program(packed))
    with pytest.raises(GraphBreakError):
        whole(program)(packed)
