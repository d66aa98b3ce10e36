"""Gradients taken inside a graph without `retain_graph`: what eager refuses afterwards is refused."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.fx as fx

import lamina_aot_autograd as aot


def autograd_grad(outputs, inputs, grad_outputs, retain_graph, create_graph):
    return torch.autograd.grad(outputs, inputs, grad_outputs, retain_graph=retain_graph, create_graph=create_graph)


autograd_grad._lamina_needs_real_tensors = True


def run_backward(tensors, seeds, retain_graph, inputs, watched, priors):
    torch.autograd.backward(tensors, seeds, retain_graph, inputs=inputs)
    return tuple(t.grad for t in watched)


run_backward._lamina_needs_real_tensors = True


def build(record):
    """A captured graph: `record(graph, x)` adds nodes and returns the outputs."""
    graph = fx.Graph()
    graph.output(tuple(record(graph, graph.placeholder("x"))))
    return fx.GraphModule(torch.nn.Module(), graph)


def gradient(graph, loss, x, retain=None, create=False):
    taken = graph.call_function(autograd_grad, ([loss], [x], None, retain, create))
    return graph.call_function(operator.getitem, (taken, 0))


def total(graph, value):
    return graph.call_method("sum", (value,))


def twice(graph, x):
    y = graph.call_function(torch.sin, (x,))
    return [gradient(graph, total(graph, y), x), gradient(graph, total(graph, y), x)]


def twice_retained(graph, x):
    y = graph.call_function(torch.sin, (x,))
    return [gradient(graph, total(graph, y), x, True), gradient(graph, total(graph, y), x)]


def twice_created(graph, x):
    y = graph.call_function(torch.sin, (x,))
    return [gradient(graph, total(graph, y), x, None, True), gradient(graph, total(graph, y), x)]


def nothing_saved(graph, x):
    y = graph.call_function(operator.neg, (x,))
    return [gradient(graph, total(graph, y), x), gradient(graph, total(graph, y), x)]


def separate(graph, x):
    return [gradient(graph, total(graph, graph.call_function(op, (x,))), x) for op in (torch.sin, torch.exp)]


def in_place_between(graph, x):
    y = graph.call_function(torch.sin, (x,))
    first = gradient(graph, total(graph, y), x)
    z = graph.call_method("mul_", (y, 2))
    return [first, gradient(graph, total(graph, z), x)]


def behind_a_backward(graph, x):
    y = graph.call_function(torch.sin, (x,))
    graph.call_function(run_backward, ([total(graph, y)], [None], False, None, [x], [None]))
    return [gradient(graph, total(graph, y), x)]


def under_autocast(graph, x):
    mode = graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
    y = graph.call_function(torch.sin, (x,))
    found = [gradient(graph, total(graph, y), x), gradient(graph, total(graph, y), x)]
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (mode,))
    return found


PROGRAMS = [twice, twice_retained, twice_created, nothing_saved, separate, in_place_between, behind_a_backward]


def answers(call):
    x = torch.arange(1.0, 4.0).requires_grad_()
    try:
        return [t.detach() for t in call(x)]
    except RuntimeError as error:
        return str(error)[:48]


@pytest.mark.parametrize("program", [*PROGRAMS, under_autocast])
def test_a_second_gradient_is_refused_where_eager_refuses_it(program):
    gm = build(program)
    compiled = aot.aot_compile(gm, [torch.ones(3, requires_grad=True)])
    for _ in range(2):
        wanted, found = answers(gm), answers(compiled)
        assert not torch.is_autocast_enabled("cpu") or torch.amp.autocast_mode._exit_autocast
        if isinstance(wanted, str):
            assert found == wanted
        else:
            torch.testing.assert_close(found, wanted)
    torch.set_autocast_enabled("cpu", False)  # `under_autocast` raises before it leaves the region, as eager's


def freed_and_returned(graph, x):
    y = graph.call_function(torch.sin, (x,))
    return [y, graph.call_function(torch.exp, (y,)), gradient(graph, total(graph, y), x)]


def partly_freed(graph, x):
    y = graph.call_function(torch.sin, (x,))
    taken = gradient(graph, total(graph, y), x)
    return [graph.call_function(torch.exp, (x,)), graph.call_function(torch.mul, (taken, 2)), y]


@pytest.mark.parametrize("program", [freed_and_returned, partly_freed])
def test_results_behind_a_freed_graph(program):
    gm = build(program)
    compiled = aot.aot_compile(gm, [torch.ones(3, requires_grad=True)])
    told = []
    for call in (gm, compiled):
        x = torch.arange(1.0, 4.0).requires_grad_()
        told.append([])
        for result in call(x):
            if result.requires_grad:
                try:
                    (taken,) = torch.autograd.grad(result.sum(), x, retain_graph=True)
                    told[-1].append([round(v, 4) for v in taken.tolist()])
                except RuntimeError as error:
                    told[-1].append(str(error)[:48])
    assert told[0] == told[1]
