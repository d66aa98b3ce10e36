"""Floats that change from call to call, given to operators that take numbers only."""

from __future__ import annotations

import pytest
import torch

import lamina

library = torch.library.Library("lamina_number_arguments", "DEF")
library.define("scaled(Tensor x, float s) -> Tensor")
library.impl("scaled", lambda x, s: x * s, "CPU")
library.impl("scaled", lambda x, s: torch.empty_like(x), "Meta")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_result_is_used_by_what_is_compiled_after(backend):
    scaled = torch.ops.lamina_number_arguments.scaled

    def fn(x, s):
        return scaled(x.sin(), s).cos() + scaled(x, s)

    compiled = lamina.compile(fn, backend=backend)
    for s in (0.5, 0.25, 0.125, 2.0):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, s), fn(x, s))
