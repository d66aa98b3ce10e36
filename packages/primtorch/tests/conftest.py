"""Options and shared modules of the tests: ``--full`` runs every sample of every operator instead of a fixed few."""

import os
import sys

os.environ.setdefault("LAMINA_STRICT", "1")
sys.path.insert(0, os.path.dirname(__file__))

import contextlib  # noqa: E402

import pytest  # noqa: E402


def pytest_addoption(parser):
    with contextlib.suppress(ValueError):
        parser.addoption("--full", action="store_true", default=False, help="all samples of all operators")


@pytest.fixture(scope="session")
def full(request):
    return request.config.getoption("--full")
