"""End-to-end tests use the real stack: nothing is replaced."""

from __future__ import annotations

import pytest
import torch

import lamina


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    lamina.reset()
    yield
    lamina.reset()
