"""Calls with inputs that a graph was not compiled for."""

import pytest
import torch
from check import TARGETS
from programs import Tracer
from test_symbolic import Recorder

from lamina_inductor import compile_graph
from lamina_inductor.config import current
from lamina_inductor.errors import InputError


def build(target, **changes):
    from dataclasses import replace

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    t = Tracer(x, y)
    return compile_graph(t.finish(t.add(x, y)), target=target, config=replace(current(), **changes))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "wrong",
    [
        torch.randn(2, 4), torch.randn(3, 4, 1), torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 3).t(),
        torch.randn(3, 8)[:, ::2], torch.randn(()), torch.randn(12), 3.0, None,
    ],
)  # fmt: skip
def test_wrong_inputs_raise(target, wrong):
    compiled = build(target)
    good = torch.randn(3, 4)
    assert torch.equal(compiled([good, good])[0], good + good)
    for inputs in ([good, wrong], [wrong, good]):
        with pytest.raises(InputError, match="input"):
            compiled(list(inputs))
        with pytest.raises(InputError, match="input"):
            compiled.unboxed(*inputs)


@pytest.mark.parametrize("target", TARGETS)
def test_wrong_number_of_inputs(target):
    with pytest.raises(InputError, match="1 inputs, the graph takes 2"):
        build(target)([torch.randn(3, 4)])


@pytest.mark.parametrize("target", TARGETS)
def test_symbolic_sizes_must_agree_between_inputs(target):
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    t = Recorder(x, y, dynamic=[(0,), (0,)])
    compiled = compile_graph(t.finish(t.add(*t.fakes)), target=target)
    assert compiled([torch.ones(5, 4), torch.ones(5, 4)])[0].shape == (5, 4)
    for bad in (torch.ones(4, 4), torch.ones(5, 3), torch.ones(4, 5).t(), torch.ones(5)):
        with pytest.raises(InputError):
            compiled([torch.ones(5, 4), bad])


def test_switched_off():
    compiled = build("reference", check_inputs=False)
    assert type(compiled.unboxed).__name__ != "CheckedGraph"
