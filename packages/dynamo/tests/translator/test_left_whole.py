"""What eager runs whole: recurrent modules whose call breaks, and the attribute hooks of classes."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import lamina_dynamo
from lamina_dynamo import observe
from lamina_dynamo.counters import reset_counters


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.rnn, self.after = nn.Linear(3, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.before(x).relu(), lengths, batch_first=True)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.after(y).relu()


@pytest.fixture
def frames():
    seen = []
    remove = observe.on_event(lambda e: seen.append(e.payload["code"].co_name) if e.name.startswith("frame") else None)
    yield seen
    remove()


def test_packed_sequences_leave_two_graphs(frames):
    model = Packed()
    x, lengths = torch.randn(2, 6, 3), torch.tensor([6, 4])
    reset_counters()
    compiled = lamina_dynamo.optimize("eager")(model)
    torch.testing.assert_close(compiled(x, lengths), model(x, lengths))
    counters = lamina_dynamo.counters()
    assert counters["graphs"] == 2
    assert sum(counters["breaks"].values()) <= 2
    assert counters["continued_breaks"]
    assert not {"pack_padded_sequence", "pad_packed_sequence", "__getattr__"} & set(frames)


def test_recurrent_modules_are_captured_where_they_can_be():
    model = nn.Sequential(nn.LSTM(3, 4))
    x = torch.randn(5, 2, 3)
    got = lamina_dynamo.optimize("eager", fullgraph=True)(model)(x)
    torch.testing.assert_close(got, model(x))


def test_attribute_hooks_are_no_frames_of_their_own(frames):
    class Settings:
        def __getattribute__(self, name):
            return object.__getattribute__(self, "table").get(name) if name != "table" else {"size": 3}

        def __getattr__(self, name):
            return len(name)

    def fn(x, settings):
        lamina_dynamo.graph_break()
        return x + len([getattr(settings, "abcdefghijklmnop"[i:]) for i in range(12)])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = lamina_dynamo.optimize("eager")(fn)
        assert torch.equal(compiled(torch.ones(2), Settings()), torch.ones(2) + 12)
    assert not {"__getattribute__", "__getattr__"} & set(frames)


@pytest.mark.parametrize("wants_grad", [False, True])
def test_backward_hooks_of_modules_are_set_up_by_eager(frames, wants_grad):
    net, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), []
    net[0].register_full_backward_hook(lambda module, inward, outward: seen.append(outward[0].clone()))
    x = torch.randn(3, 4, requires_grad=wants_grad)
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of hooks whose inputs want no gradient
        lamina_dynamo.optimize(backend)(net)(x).sum().backward()
        got = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        net(x).sum().backward()
    torch.testing.assert_close(got, [p.grad for p in net.parameters()])
    torch.testing.assert_close(seen[0], seen[1])
    assert not any("Hook" in str(n.target) for gm in graphs for n in gm.graph.nodes)
    assert "_apply_on_tensors" not in frames


def test_packed_sequences_are_one_break():
    net = nn.LSTM(4, 5, batch_first=True)

    def fn(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x + 1, lengths, batch_first=True)
        out, sizes = nn.utils.rnn.pad_packed_sequence(net(packed)[0], batch_first=True)
        return out * 2, sizes

    lamina_dynamo.reset()
    x, lengths = torch.randn(2, 3, 4), torch.tensor([3, 2])
    torch.testing.assert_close(lamina_dynamo.optimize("eager")(fn)(x, lengths), fn(x, lengths))
    assert sum(lamina_dynamo.counters()["breaks"].values()) == 1
    lamina_dynamo.reset()
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    lamina_dynamo.optimize("eager")(net)(packed)
    assert sum(lamina_dynamo.counters()["breaks"].values()) >= 1


def test_a_small_function_that_reads_value_after_value():
    """After two reads with next to nothing between them eager goes on; what it calls is captured."""

    @lamina_dynamo.optimize("eager")
    def crop(x, box):
        left = int(box[0] + 1)
        top = int(box[1] + 1)
        right = int(box[2] + 1)
        bottom = int(box[3] + 1)
        wide = int(box[2] - box[0])
        return x[top:bottom, left:right] * wide

    x, box = torch.arange(36.0).view(6, 6), torch.tensor([0, 1, 3, 4])
    before = dict(lamina_dynamo.counters()["breaks"])
    for _ in range(2):
        assert torch.equal(crop(x, box), x[2:5, 1:4] * 3)
    after = lamina_dynamo.counters()["breaks"]
    assert after["data_dependent_scalar"] - before.get("data_dependent_scalar", 0) == 2


def test_a_small_function_with_a_part_worth_a_graph_is_captured():
    """However often it reads values with little before."""
    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(20)])

    def program(x, flag):
        if flag.any():
            x = x + 1
        return net(x)

    compiled = lamina_dynamo.optimize("eager", dynamic=False)(program)
    lamina_dynamo.reset()
    for n in range(1, 5):
        x = torch.ones(n, 4)
        assert torch.equal(compiled(x, torch.ones(n)), program(x, torch.ones(n)))
    assert lamina_dynamo.counters()["graphs"] == 8


def test_a_small_function_that_is_called_with_many_shapes():
    def kept(x):
        return x[torch.where(x > 0)[0]] * 2

    compiled = lamina_dynamo.optimize("eager", dynamic=False)(kept)
    lamina_dynamo.reset()
    for n in range(2, 7):
        x = torch.arange(float(n)) - 1
        assert torch.equal(compiled(x), kept(x))
    assert lamina_dynamo.counters()["breaks"]["data_dependent_shape"] == 2
