"""Float inputs that change from call to call: traced once, with the results of Python floats."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from lamina_aot_autograd import aot_compile
from lamina_aot_autograd.observe import on_event


def graph_of(build, x):
    """``build(graph, x, s)`` gives the output nodes; every node carries its metadata, numbers as symbols."""
    graph = fx.Graph()
    x_node, s_node = graph.placeholder("x"), graph.placeholder("s")
    x_node.meta["val"], s_node.meta["val"] = x, ShapeEnv().create_unbacked_symfloat()
    graph.output(tuple(build(graph, x_node, s_node)))
    for node in graph.nodes:
        if node.op in ("call_function", "call_method"):
            args = fx.node.map_arg(node.args, lambda n: n.meta["val"])
            kwargs = fx.node.map_arg(node.kwargs, lambda n: n.meta["val"])
            if is_tensor_op(node):  # metadata does not depend on the value
                args = [0.1 if isinstance(a, torch.SymFloat) else a for a in args]
                kwargs = {k: 0.1 if isinstance(a, torch.SymFloat) else a for k, a in kwargs.items()}
            run = getattr(args[0], node.target) if node.op == "call_method" else node.target
            node.meta["val"] = run(*(args[1:] if node.op == "call_method" else args), **kwargs)
    return fx.GraphModule({}, graph)


def is_tensor_op(node):
    return any(isinstance(n.meta["val"], torch.Tensor) for n in node.all_input_nodes) or node.target is torch.full


OPS = {
    "mul": lambda g, x, s: [g.call_function(operator.mul, (x, s))],
    "reflected": lambda g, x, s: [g.call_function(operator.truediv, (s, x))],
    "compare": lambda g, x, s: [g.call_function(operator.gt, (x, s))],
    "alpha": lambda g, x, s: [g.call_method("add", (x, x), {"alpha": s})],
    "addcdiv": lambda g, x, s: [g.call_function(torch.addcdiv, (x, x, x), {"value": s})],
    "where": lambda g, x, s: [g.call_function(torch.where, (g.call_function(operator.gt, (x, 0)), x, s))],
    "full": lambda g, x, s: [g.call_function(torch.full, ((2,), s)), x],
    "arithmetic": lambda g, x, s: [
        g.call_function(operator.mul, (x, g.call_function(operator.pow, (g.call_function(operator.add, (s, 1)), 2))))
    ],
    "returned": lambda g, x, s: [g.call_function(operator.mul, (x, s)), g.call_function(operator.mul, (s, 2))],
    "foreach": lambda g, x, s: [
        g.call_function(operator.getitem, (g.call_function(torch._foreach_mul, ([x, x], s)), 1))
    ],
    "number only": lambda g, x, s: [g.call_function(torch.nn.functional.leaky_relu, (x, s))],
}
TENSORS = {
    "float": torch.tensor([[1.5, -2.0], [0.25, 3.0]]),
    "double": torch.tensor([1.5, -2.0], dtype=torch.float64),
    "half": torch.tensor([1.5, -2.0], dtype=torch.float16),
    "int": torch.tensor([1, -2, 3]),
    "0-dim": torch.tensor(2.5),
    "0-dim int": torch.tensor(3),
}


# add with a float alpha and its like take no integers
PAIRS = [
    (op, kind) for op in OPS for kind in TENSORS if "int" not in kind or op not in ("alpha", "addcdiv", "number only")
]


@pytest.mark.parametrize(("op", "kind"), PAIRS)
def test_values_and_dtypes(op, kind):
    x = TENSORS[kind]
    gm = graph_of(OPS[op], x)
    retraced = []
    remove = on_event(lambda e: retraced.append(e.name) if e.name in ("retrace", "fallback") else None)
    try:
        call = aot_compile(gm, [x, gm.graph.find_nodes(op="placeholder")[1].meta["val"]])
        for s in (0.1, 0.2, 0.75, -1.5):
            for want, got in zip(gm.forward(x, s), call(x, s), strict=True):
                assert type(want) is type(got)
                if isinstance(want, torch.Tensor):
                    assert want.dtype is got.dtype
                    assert torch.allclose(want, got, rtol=2e-3 if kind == "half" else 1e-6)
                else:
                    assert want == got
    finally:
        remove()
    assert not retraced


def test_gradients():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    gm = graph_of(OPS["mul"], x)
    call = aot_compile(gm, [x, gm.graph.find_nodes(op="placeholder")[1].meta["val"]])
    for s in (0.1, 0.5, 3.0):
        (grad,) = torch.autograd.grad(call(x, s)[0].sum(), x)
        assert torch.allclose(grad, torch.full((2,), s))


def test_errors_of_python_arithmetic():
    gm = graph_of(lambda g, x, s: [g.call_function(operator.mul, (x, g.call_function(operator.truediv, (1.0, s))))],
                  torch.ones(2))  # fmt: skip
    call = aot_compile(gm, [torch.ones(2), gm.graph.find_nodes(op="placeholder")[1].meta["val"]])
    assert torch.equal(call(torch.ones(2), 0.5)[0], torch.full((2,), 2.0))
    with pytest.raises(ZeroDivisionError):
        call(torch.ones(2), 0.0)
