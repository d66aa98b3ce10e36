"""Guards of equal modules, laid out as a whole."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lamina_dynamo
from lamina_dynamo.guards.kinds import Guard
from lamina_dynamo.guards.pattern import GuardPattern, GuardTable, PatternGuards, expand_guards
from lamina_dynamo.roots import LocalSource
from lamina_dynamo.source import AttrSource, ItemSource, Scope


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.LayerNorm(4)
        self.scale, self.names = 2, {"x": 1}

    def forward(self, x):
        for _ in range(3):  # long enough to be stamped out
            x = self.b(torch.relu(self.a(x)) * self.scale + len(self.names)) + x
        return x


def changes(k: int):
    """(name, change of block k that has to be noticed)."""
    yield "constant", lambda m: setattr(m[k], "scale", 3)
    yield "dict", lambda m: m[k].names.update(y=1)
    yield "epsilon", lambda m: setattr(m[k].b, "eps", 0.5)
    yield "parameter", lambda m: setattr(m[k].a, "bias", None)
    yield "module", lambda m: setattr(m[k], "a", nn.Identity())
    yield "hook", lambda m: m[k].b.register_forward_hook(lambda mod, i, o: o * 2)
    yield "dtype", lambda m: m.double()
    yield "method", lambda m: setattr(m[k].a, "forward", lambda x: x + 1)
    yield "shared", lambda m: setattr(m[k], "b", m[0].b)
    yield "training", lambda m: m[k].eval()
    yield "grad", lambda m: m[k].a.weight.requires_grad_(False)


@pytest.mark.parametrize("name", [n for n, _ in changes(0)])
@pytest.mark.parametrize("k", [0, 3, 5])
def test_every_change_of_a_stamped_module_is_noticed(name, k, monkeypatch):
    made = []
    append = GuardTable.append_pattern
    monkeypatch.setattr(GuardTable, "append_pattern", lambda *args: made.append(args[1]) or append(*args))
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(6)))
    record = []

    def backend(gm, inputs):
        record.append(gm)
        return gm

    run = lamina_dynamo.optimize(backend)(model.forward)
    x = torch.randn(2, 4)
    assert torch.equal(run(x), model(x)) and len(made) == 4
    assert torch.equal(run(x), model(x)) and len(record) == 1
    dict(changes(k))[name](model)
    x = x.to(next(model.parameters()).dtype)
    assert torch.equal(run(x), model(x))


def test_guards_of_a_pattern_are_those_made_one_by_one():
    top, other = LocalSource("x"), ItemSource(LocalSource("y"), 0)
    inner = AttrSource(AttrSource(top, "a"), "b")
    guards = [Guard(top, "TYPE", Block), Guard(inner, "CONSTANT", 3), Guard(AttrSource(top, "c"), "CONSTANT", 4)]
    pattern = GuardPattern(top, guards)
    found = list(expand_guards([guards[1], PatternGuards(pattern, other, {})]))
    assert [g.name for g in found] == ["x.a.b", "y[0]", "y[0].a.b", "y[0].c"]
    assert [g.value for g in found] == [3, Block, 3, 4]
    table = GuardTable()
    table.append(guards[0])
    table.append_pattern(other, top, guards)
    table.append(guards[2])
    assert len(table) == 5 and [str(g) for g in table] == [str(table[i]) for i in range(5)]
    assert table[-1] is guards[2] and table[1].name == "y[0]" and [g.name for g in table[2:4]] == ["y[0].a.b", "y[0].c"]
    with pytest.raises(IndexError):
        table[5]


def test_a_pattern_holds_where_each_of_its_checks_does():
    class Plain:
        pass

    def plain(**fields):
        new = Plain()
        vars(new).update(fields)
        return new

    top = LocalSource("x")
    pattern = GuardPattern(
        top,
        [
            Guard(top, "TYPE", Plain),
            Guard(AttrSource(top, "d"), "DICT_KEYS", ("k",)),
            Guard(ItemSource(AttrSource(top, "d"), "k"), "CONSTANT", 1),
        ],
    )
    scope = Scope({}, {}, {})
    pattern.settle(pattern.values(plain(d={"k": 1}), scope))
    for value, expected in (
        (plain(d={"k": 1}, e=2), True), (plain(d={"k": 2}), False), (plain(d={"k": True}), False), (plain(), False),
        (plain(d={"k": 1, "j": 1}), False), (plain(d={}), False), (plain(d=[1]), False), (3, False),
    ):  # fmt: skip
        assert pattern.holds(pattern.values(value, scope)) is expected
