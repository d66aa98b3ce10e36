"""Comparison of a compiled graph with eager: values, dtypes, strides, aliasing, mutation, versions, gradients."""

from __future__ import annotations

import os

os.environ.setdefault("LAMINA_STRICT", "1")

import copy

import pytest
import torch
import torch.fx as fx

import lamina_aot_autograd as aot


def trace(fn):
    """Captured form of a Python function of tensors: what a front end would hand over."""
    if isinstance(fn, fx.GraphModule):
        return fn
    gm = fx.symbolic_trace(fn)
    out = gm.graph.output_node()
    if isinstance(out.args[0], list):
        out.args = (tuple(out.args[0]),)
    return gm


def checked_eager(gm, fakes):
    """The null compiler, checking the contract of every graph it is given, and the strides and dtypes it promises."""
    aot.check_graph(gm)
    promised = [n.meta["val"] if isinstance(n, fx.Node) else None for n in gm.graph.output_node().args[0]]
    inner = aot.run_eagerly(gm)

    def run(args):
        results = inner(args)
        for value, want in zip(results, promised, strict=True):
            if isinstance(want, torch.Tensor) and not any(isinstance(s, torch.SymInt) for s in want.shape):
                assert value.dtype is want.dtype and value.shape == want.shape, (
                    gm.code,
                    value.dtype,
                    value.shape,
                    want,
                )
                assert value.stride() == want.stride() or 0 in want.shape, (gm.code, value.stride(), want.stride())
        return results

    run._boxed_call = True
    return run


def compile_fn(fn, inputs, **options):
    options.setdefault("forward_compiler", checked_eager)
    return aot.aot_compile(trace(fn), inputs, **options)


def _storages(tensors):
    order = {}
    return [
        order.setdefault(t.untyped_storage().data_ptr(), len(order)) if isinstance(t, torch.Tensor) else None
        for t in tensors
    ]


def assert_same(want, got, what):
    assert type(want) is type(got) or isinstance(want, torch.Tensor), (what, want, got)
    if not isinstance(want, torch.Tensor):
        assert want == got, (what, want, got)
        return
    assert want.dtype is got.dtype, (what, want.dtype, got.dtype)
    assert want.shape == got.shape, (what, want.shape, got.shape)
    assert want.requires_grad == got.requires_grad, (what, "requires_grad", want.requires_grad)
    if want.numel():
        assert want.stride() == got.stride(), (what, want.stride(), got.stride())
    assert torch.allclose(want.detach(), got.detach(), rtol=1e-4, atol=1e-5, equal_nan=True), (what, want, got)


def compare(fn, make_inputs, *, reason=None, calls=2, gradients=True, **options):
    """Run eager and compiled on equal inputs and compare everything. `make_inputs()` gives fresh inputs each time.

    reason: part of the expected fallback reason, or None when the graph must compile.
    """
    gm = trace(fn)
    compiled = None
    for _ in range(calls):
        a, b = make_inputs(), make_inputs()
        if compiled is None:
            compiled = compile_fn(gm, make_inputs() if options.pop("own_examples", False) else b, **options)
            if reason is None:
                if getattr(compiled, "error", None) is not None:
                    raise compiled.error
                assert compiled.reason is None, compiled.reason
            else:
                assert reason in str(compiled.reason), compiled.reason
        torch.manual_seed(11)
        state = torch.get_rng_state()
        want = gm(*a)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        got = compiled(*b)
        assert torch.equal(after, torch.get_rng_state()), "the random stream differs"
        if not isinstance(want, tuple):
            want, got = (want,), (got,)
        assert len(want) == len(got)
        for i, (w, g) in enumerate(zip(want, got, strict=True)):
            assert_same(w, g, f"output {i}")
        for i, (w, g) in enumerate(zip(a, b, strict=True)):
            if isinstance(w, torch.Tensor):
                assert_same(w, g, f"input {i}")
                assert w._version == g._version, (f"version of input {i}", w._version, g._version)
                assert w.is_leaf == g.is_leaf, f"input {i}"
        tensors = (
            [t for t in (*a, *want) if isinstance(t, torch.Tensor)],
            [t for t in (*b, *got) if isinstance(t, torch.Tensor)],
        )
        assert _storages(tensors[0]) == _storages(tensors[1]), "aliasing differs"
        for i in range(len(want)):
            for j in range(i):
                assert (want[i] is want[j]) == (got[i] is got[j]) or not isinstance(want[i], torch.Tensor)
        if gradients:
            _compare_gradients(a, b, want, got)
    return compiled


def _compare_gradients(a, b, want, got):
    leaves = [(w, g) for w, g in zip(_leaves(a), _leaves(b), strict=True)]
    losses = []
    for side in (want, got):
        torch.manual_seed(7)
        total = None
        for t in side:
            if isinstance(t, torch.Tensor) and t.requires_grad:
                part = (t * torch.randn(t.shape).to(t.dtype)).sum()
                total = part if total is None else total + part
        losses.append(total)
    assert (losses[0] is None) == (losses[1] is None)
    if losses[0] is None or not leaves:
        return
    wanted = torch.autograd.grad(losses[0], [w for w, _ in leaves], allow_unused=True)
    found = torch.autograd.grad(losses[1], [g for _, g in leaves], allow_unused=True)
    for i, (w, g) in enumerate(zip(wanted, found, strict=True)):
        assert (w is None) == (g is None), f"gradient {i}: {w} against {g}"
        if w is not None:
            assert w.dtype is g.dtype and w.shape == g.shape
            assert torch.allclose(w, g, rtol=1e-4, atol=1e-5, equal_nan=True), (f"gradient {i}", w, g)


def _leaves(inputs):
    return [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf] + [
        leaf for t in inputs if isinstance(t, torch.Tensor) for leaf in getattr(t, "test_leaves", ())
    ]


class Harness:
    trace = staticmethod(trace)
    compare = staticmethod(compare)
    compile_fn = staticmethod(compile_fn)
    checked_eager = staticmethod(checked_eager)
    deepcopy = staticmethod(copy.deepcopy)


@pytest.fixture
def h():
    return Harness
