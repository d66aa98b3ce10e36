"""The option `freezing`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lamina

pytest.importorskip("lamina_inductor")


def _network():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2, bias=False), nn.BatchNorm2d(8),
        nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    for norm in (net[1], net[4]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return net.eval()


def test_frozen_results_and_changed_weights():
    net, x = _network(), torch.randn(2, 3, 12, 12)
    run = lamina.compile(net, options={"freezing": True})
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(run(x), net(x), rtol=1e-4, atol=1e-5)
        net[0].weight.mul_(1.5)
        torch.testing.assert_close(run(x), net(x), rtol=1e-4, atol=1e-5)
        net[1].running_mean.add_(1)
        torch.testing.assert_close(run(x), net(x), rtol=1e-4, atol=1e-5)
        net[8].weight = nn.Parameter(torch.randn(5, 8))
        torch.testing.assert_close(run(x), net(x), rtol=1e-4, atol=1e-5)


def test_statistics_that_a_call_updates_are_no_constants():
    net, x = _network().train(), torch.randn(4, 3, 12, 12)
    twin = _network().train()
    run = lamina.compile(net, options={"freezing": True})
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), twin(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net[1].running_mean, twin[1].running_mean)


def test_training_is_not_frozen():
    net, x = _network(), torch.randn(2, 3, 12, 12)
    run = lamina.compile(net, options={"freezing": True})
    run(x).sum().backward()
    assert net[0].weight.grad is not None
