"""`lamina.check` sees each way in which a backend can differ from eager: one fault of each kind, and none of them."""

from __future__ import annotations

import pytest
import torch

import lamina
import lamina_dynamo


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(6, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, y):
        self.calls.add_(1)
        y.mul_(2)
        z = self.lin(x).sigmoid()
        return z, y.view(-1), z.detach() + torch.rand(()), z.sum()


def scaled_gradient(t):
    return t + 0.01 * (t - t.detach())


def on_copies(run):
    def faulty(*inputs):
        return run(*(t.detach().clone() if not t.requires_grad and t.dim() else t for t in inputs))

    return faulty


def on_a_copied_buffer(run):
    def faulty(*inputs):
        return run(*(t.clone() if t.dim() == 0 else t for t in inputs))

    return faulty


def draws_twice(run):
    def faulty(*inputs):
        out = run(*inputs)
        torch.rand(())
        return out

    return faulty


def holds_much(run):
    def faulty(*inputs):
        much = torch.zeros(16 << 20, dtype=torch.uint8)
        out = run(*inputs)
        del much
        return out

    return faulty


def raises(run):
    def faulty(*inputs):
        raise ArithmeticError("planted")

    return faulty


def by_shape(shape, with_):
    """A fault in the output of this shape, wherever it stands among the graph's outputs."""
    def plant(run):
        def faulty(*inputs):
            def meant(o):
                return tuple(o.shape) == shape and o.requires_grad == (shape == (3, 4))

            return tuple(with_(o) if meant(o) else o for o in run(*inputs))

        return faulty

    return plant


FAULTS = {
    "value": (by_shape((3, 4), lambda z: z * 1.0001), "off by"),
    "gradient": (by_shape((3, 4), scaled_gradient), "gradient 0"),
    "dtype": (by_shape((3, 4), lambda z: z.double()), "dtype torch.float32 became torch.float64"),
    "shape": (by_shape((3, 4), lambda z: z[None]), "shape"),
    "stride": (by_shape((3, 4), lambda z: z.t().contiguous().t()), "stride (4, 1) became (1, 3)"),
    "requires_grad": (by_shape((3, 4), lambda z: z.detach()), "requires_grad True became False"),
    "nan": (by_shape((3, 4), lambda z: torch.where(z == z.max(), torch.nan, z)), "nan or infinite"),
    "mutation of an argument": (on_copies, "argument 1"),
    "mutation of a buffer": (on_a_copied_buffer, "state calls"),
    "aliasing": (by_shape((10,), lambda y: y.clone()), "shared memory"),
    "random numbers": (draws_twice, "random state"),
    "memory": (holds_much, "peak memory"),
    "exception": (raises, "exception: no exception became ArithmeticError"),
}


def backend_of(fault):
    plant = FAULTS[fault][0] if fault else lambda run: run

    def backend(gm, example_inputs):
        return plant(gm.forward)

    name = f"faulty_{fault}"
    lamina_dynamo.backends._registered.pop(name, None)
    lamina_dynamo.register_backend(name, backend)
    return name


@pytest.fixture
def call():
    torch.manual_seed(0)
    return Net(), (torch.randn(3, 6), torch.randn(2, 5))


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_a_fault_of_each_kind_is_seen(call, fault):
    model, args = call
    name = backend_of(fault)
    try:
        report = lamina.check(model, backends=["eager", name])(*args)
    finally:
        lamina_dynamo.backends._registered.pop(name)
    assert not report.differences["eager"], report
    found = report.differences[name]
    if fault is None:
        assert not found, report
    else:
        assert any(FAULTS[fault][1] in line for line in found) and report.first == name, report
    assert float(model.calls) == 0 and model.lin.weight.grad is None


def test_the_ladder_is_right_here(call):
    model, args = call
    report = lamina.check(model)(*args)
    assert report.ok, report
    assert list(report.differences) == ["eager", "aot_eager", "aot_prims", "reference", "inductor"]


def test_memory_of_layers_is_no_fault():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    convolutions = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
                                       torch.nn.Conv2d(32, 32, 3), torch.nn.AdaptiveAvgPool2d(1))
    for model, x in ((layer, torch.randn(16, 128, 64)), (convolutions, torch.randn(8, 3, 64, 64))):
        report = lamina.check(model, backends=["inductor"])(x)
        assert report.ok, report
