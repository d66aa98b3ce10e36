"""Sizes that only the run knows (``x[x > 0]``): operators whose rules ask whether they are 0 or 1, and what a program
sees of the answer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lamina_dynamo
from lamina_dynamo.errors import GraphBreakError

COUNTS = (3, 1, 0, 2, 5)


def rows(count):
    x = torch.arange(15.0).reshape(5, 3).sin()
    x[:, 0] = -1
    x[:count, 0] = torch.arange(1.0, count + 1)
    return x


def compiled(body, dynamic, fullgraph=True):
    def program(x):
        return body(x[x[:, 0] > 0])

    settings = lamina_dynamo.config.patch(capture_dynamic_output_shape=True)
    return program, lamina_dynamo.optimize("eager", fullgraph=fullgraph, dynamic=dynamic)(program), settings


CAPTURED = {
    "batch norm": lambda k: F.batch_norm(k, torch.zeros(3), torch.ones(3)),
    "attention": lambda k: F.scaled_dot_product_attention(k[None], k[None], k[None]),
    "transposed copy": lambda k: k.T.contiguous(),
    "outer": lambda k: k[:, 0][None] * k[:, 0][:, None],
    "squeeze of a known dimension": lambda k: k[:, None].squeeze(1),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", CAPTURED)
def test_rules_that_ask_for_zero_or_one(name, dynamic):
    program, call, settings = compiled(CAPTURED[name], dynamic)
    with settings:
        for count in COUNTS:
            expected = program(rows(count))
            result = call(rows(count))
            assert result.shape == expected.shape and result.stride() == expected.stride()
            assert torch.equal(result, expected)


SEEN = {
    "rank": lambda k: (k.squeeze().dim(), k),
    "stride": lambda k: (k.T.contiguous().stride(), k),
    "contiguous": lambda k: (k.T.is_contiguous(), k),
    "broadcast to two rows": lambda k: ((k + torch.ones(2, 3)).shape[0], k),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", SEEN)
def test_what_the_program_sees_is_not_supposed(name, dynamic):
    program, call, settings = compiled(SEEN[name], dynamic, fullgraph=False)
    with settings:
        for count in COUNTS:
            try:
                expected = program(rows(count))
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    call(rows(count))
                continue
            result = call(rows(count))
            assert result[0] == expected[0] and torch.equal(result[1], expected[1])
        with pytest.raises(GraphBreakError, match="depends on tensor values"):
            compiled(SEEN[name], dynamic)[1](rows(3))
