"""The example backend in numpy runs a model, backward formulas included, and says what it lacks."""

import importlib.util
import pathlib

import pytest
import torch
import torch.nn.functional as F

PATH = pathlib.Path(__file__).parents[3] / "examples" / "tiny_backend" / "tiny_backend.py"


@pytest.fixture(scope="module")
def tiny():
    if not PATH.exists():  # the package alone, without the repository
        pytest.skip("the examples folder is not here")
    spec = importlib.util.spec_from_file_location("tiny_backend", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_stays_small(tiny):
    assert len(PATH.read_text().splitlines()) < 300


def test_the_model(tiny):
    model, x = tiny.small_model()
    got = tiny.compile_graph(tiny.trace(model, x))(x)[0]
    torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-5)


def test_attention_and_indexing(tiny):
    def fn(q, table, ids):
        k = table[ids]
        s = torch.softmax(q @ k.transpose(1, 2) / 2.0, -1)
        return torch.cat([s @ k, q], -1), F.silu(k).sum(1), s.argmax(-1)

    torch.manual_seed(0)
    args = torch.randn(2, 3, 4), torch.randn(7, 4), torch.tensor([[0, 3, 6], [1, 1, 2]])
    for got, want in zip(tiny.compile_graph(tiny.trace(fn, *args))(*args), fn(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_absent_prims_are_named(tiny):
    x = torch.randn(3, 3)
    with pytest.raises(tiny.Missing, match="linalg"):
        tiny.compile_graph(tiny.trace(torch.linalg.eigvals, x))
