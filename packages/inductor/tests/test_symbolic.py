"""Symbolic sizes: one program for all sizes."""

import operator

import pytest
import torch
from check import TARGETS, compare
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from lamina_inductor.compile import compile_graph
from lamina_primtorch import prims

targets = pytest.mark.parametrize("target", TARGETS)


class Recorder:
    """Records prims on fake tensors with symbolic sizes; sizes used as arguments become nodes."""

    def __init__(self, *inputs, dynamic):
        self.graph, self.nodes, self.keep = Graph(), {}, []
        self.mode = FakeTensorMode(shape_env=ShapeEnv())
        self.fakes = []
        for k, (x, dims) in enumerate(zip(inputs, dynamic, strict=True)):
            kinds = [DimDynamic.DYNAMIC if d in dims else DimDynamic.STATIC for d in range(x.dim())]
            fake = self.mode.from_tensor(x, symbolic_context=StatelessSymbolicContext(dynamic_sizes=kinds))
            node = self.graph.placeholder(f"arg{k}")
            node.meta["val"] = fake
            self.nodes[id(fake)] = node
            self.fakes.append(fake)

    def _nodes(self, a):
        if isinstance(a, torch.Tensor):
            return self.nodes[id(a)]
        if isinstance(a, torch.SymInt):
            for fake in self.fakes:
                for d, n in enumerate(fake.shape):
                    if isinstance(n, torch.SymInt) and n.node.expr == a.node.expr:
                        node = self.graph.call_function(torch.ops.aten.sym_size.int, (self.nodes[id(fake)], d))
                        node.meta["val"] = a
                        return node
            return self._product(a)
        if isinstance(a, (tuple, list)):
            return tuple(self._nodes(x) for x in a)
        return a

    def _product(self, a):
        for fake in self.fakes:
            for n in fake.shape:
                if isinstance(n, torch.SymInt):
                    for k in range(2, 65):
                        if (n * k).node.expr == a.node.expr:
                            node = self.graph.call_function(operator.mul, (self._nodes(n), k))
                            node.meta["val"] = a
                            return node
        raise AssertionError(f"size {a}")

    def __getattr__(self, name):
        prim = getattr(prims, name)

        def call(*args):
            with self.mode:
                out = prim.eager(*args)
            node = self.graph.call_function(prim, self._nodes(args))
            node.meta["val"] = out
            self.keep.append(out)
            if isinstance(out, tuple):
                for k, part in enumerate(out):
                    item = self.graph.call_function(operator.getitem, (node, k))
                    item.meta["val"] = part
                    self.nodes[id(part)] = item
            else:
                self.nodes[id(out)] = node
            return out

        return call

    def finish(self, *outputs):
        self.graph.output(self._nodes(outputs))
        return GraphModule({}, self.graph)


def check(gm, make, sizes, target, kernels=None):
    compiled = compile_graph(gm, target=target)
    assert compiled.fallback is None, compiled.fallback
    if kernels is not None:
        assert len(compiled.kernels) == kernels
    for n in sizes:
        inputs = make(n)
        for got, want in zip(compiled(list(inputs)), gm(*inputs), strict=True):
            compare(got, want, rtol=1e-4, atol=1e-5)


@targets
def test_softmax_of_unknown_rows_and_columns(target):
    r = Recorder(torch.randn(5, 7), dynamic=[(0, 1)])
    (x,) = r.fakes
    m = r.broadcast_in_dim(r.amax(x, (1,)), tuple(x.shape), (0,))
    e = r.exp(r.sub(x, m))
    y = r.div(e, r.broadcast_in_dim(r.sum(e, (1,), torch.float32), tuple(x.shape), (0,)))
    check(r.finish(y), lambda n: [torch.randn(n, 2 * n + 1)], [2, 5, 9], target, kernels=1)


@targets
def test_reshape_and_matmul(target):
    r = Recorder(torch.randn(3, 4, 8), torch.randn(8, 8), dynamic=[(0,), ()])
    x, w = r.fakes
    flat = r.reshape(r.exp(x), (x.shape[0] * 4, 8))
    y = r.reshape(r.mm(flat, w), (x.shape[0], 4, 8))
    y = r.permute(r.add(y, x), (1, 0, 2))
    check(
        r.finish(y, r.sum(y, (1,), torch.float32)),
        lambda n: [torch.randn(n, 4, 8), torch.randn(8, 8)],
        [2, 3, 6],
        target,
    )


@targets
def test_layer_norm_with_unknown_batch(target):
    r = Recorder(torch.randn(3, 16), torch.randn(16), dynamic=[(0,), ()])
    x, w = r.fakes
    S = tuple(x.shape)
    var, mean = r.var_mean(x, (1,), 0.0)
    y = r.mul(r.sub(x, r.broadcast_in_dim(mean, S, (0,))), r.broadcast_in_dim(r.rsqrt(r.add(var, 1e-5)), S, (0,)))
    y = r.mul(y, r.broadcast_in_dim(w, S, (1,)))
    check(r.finish(y, mean), lambda n: [torch.randn(n, 16), torch.randn(16)], [2, 3, 30], target, kernels=1)


@targets
def test_cat_slice_and_mean_over_unknown_dimension(target):
    r = Recorder(torch.randn(5, 6), dynamic=[(0,)])
    (x,) = r.fakes
    c = r.cat((r.neg(x), x), 0)
    d = r.slice(c, (1, 0), (x.shape[0] * 2, 6), (1, 2))
    var, mean = r.var_mean(x, (0,), 1.0)
    check(r.finish(c, r.exp(d), var, mean), lambda n: [torch.randn(n, 6)], [2, 5, 8], target)


@targets
def test_data_dependent_size(target):
    r = Recorder(torch.tensor([1.0, 0.0, 2.0]), dynamic=[()])
    (x,) = r.fakes
    nz = r.nonzero(x)
    y = r.convert_element_type(nz, torch.float32)
    gm = r.finish(r.add(y, 1.0))
    check(gm, lambda n: [torch.tensor([float(n % 2), 1.0, float(n % 3)])], [0, 1, 2, 5], target)


@targets
def test_one_kernel_for_two_matrices_of_other_sizes(target):
    r = Recorder(torch.randn(3, 5), torch.randn(7, 2), dynamic=[(0, 1), (0, 1)])
    x, y = r.fakes
    check(
        r.finish(r.mul(r.mm(x, r.permute(x, (1, 0))), 0.5), r.mul(r.mm(y, r.permute(y, (1, 0))), 0.5)),
        lambda n: [torch.randn(n, 5), torch.randn(2 * n, 3)],
        [3, 6],
        target,
    )
