"""torch's own operator and module samples through `lamina.compile`: a fixed few here, everything with --full.

`benchmarks/ops/op_db.py` is the same check as a resumable run that writes a table.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from benchmarks.ops import op_db as checks

SAMPLED = set(
    "add sub addmm cat nn.functional.layer_norm nn.functional.gelu sum var_mean softmax cumsum scatter_add index_put"
    " amax argmax where nn.functional.conv2d nn.functional.interpolate.bilinear nn.functional.max_pool2d gather"
    " masked_fill sort topk logsumexp nn.functional.cross_entropy bmm diagonal_scatter floor_divide clamp".split()
)
DTYPES = [getattr(torch, d) for d in checks.DTYPES]


def name_of(info):
    return info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")


def judged(infos):
    """The sampled rows run always, the others with --full."""
    return [pytest.param(i, id=name_of(i), marks=() if name_of(i) in SAMPLED else pytest.mark.slow) for i in infos]


@pytest.mark.parametrize("info", judged(op_db))
def test_operator(info, request):
    full = request.config.getoption("--full")
    cases = list(checks.cases_of(info, DTYPES if full else [torch.float32, torch.int64, torch.bfloat16],
                                 list(checks.LAYOUTS), 5 if full else 2))  # fmt: skip
    wrong = [(label, problem) for label, problem in checks.check(cases, "inductor") if problem]
    assert not wrong, wrong[:5]


@pytest.mark.slow
@pytest.mark.parametrize("info", [pytest.param(i, id=name_of(i)) for i in op_db if i.error_inputs_func is not None])
def test_error_inputs(info):
    wrong = [(label, problem) for label, problem in checks.check_errors(info, "inductor") if problem]
    assert not wrong, wrong[:5]


@pytest.mark.slow
@pytest.mark.parametrize("info", [pytest.param(i, id=i.name) for i in module_db])
def test_module(info):
    cases = list(checks.module_cases(info, [torch.float32, torch.bfloat16], 3))
    wrong = [(label, problem) for label, problem in checks.check(cases, "inductor") if problem]
    assert not wrong, wrong[:5]
