"""Python integers beyond 64 bits beside compiled graphs."""

import pytest
import torch

import lamina


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_numbers_that_outgrow_a_compiled_graph(backend):
    def fn(x, n):
        return x + (n % 1000003) % 7, n % (2**63 - 1), n * n, n << 3

    compiled = lamina.compile(fn, backend=backend)
    x = torch.ones(3)
    for n in (5, 6, 7, 2**40, 2**63 + 5, 2**70, -(2**63) - 1, 3037000500, -8):
        got, want = compiled(x, n), fn(x, n)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:], n


NEGATIVE = {
    "remainder": lambda x, n: x + n % 7,
    "quotient": lambda x, n: (x + n // 7, n // 5, n % 3),
    "both": lambda x, n: x + (n * 3 % 1000003) % 7 + (n // 3) // 2,
    "place": lambda x, n: x[n % 3],
    "shift": lambda x, n: x + (n >> 1),
    "power": lambda x, n: x + (n**2) % 5,
    "roll": lambda x, n: x.roll(n),
    "branch": lambda x, n: x * 2 if n < 0 else x * 3,
}


@pytest.mark.parametrize("fn", NEGATIVE.values(), ids=NEGATIVE)
def test_a_number_that_was_positive_becomes_negative(fn):
    compiled = lamina.compile(fn)
    x = torch.arange(3.0)
    for n in (5, 6, 7, -8, -1, -13, 4, -7):
        got, want = compiled(x, n), fn(x, n)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
            assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b, n
