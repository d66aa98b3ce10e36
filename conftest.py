"""Options and markers that the tests of all packages share."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run what is marked slow, and every sample")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests unless --full is given, and GPU tests where there is no GPU."""
    import torch

    left_out = set() if config.getoption("--full") else {"slow"}
    if not torch.cuda.is_available():
        left_out.add("gpu")
    dropped = [item for item in items if left_out & {m.name for m in item.iter_markers()}]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in set(dropped)]
