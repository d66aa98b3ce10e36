"""torch's own operator and module samples through `lamina.compile`: a fixed few here, everything with --full.

`benchmarks/ops/op_db.py` is the same check as a resumable run that writes a table.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from benchmarks.ops import op_db as checks
from benchmarks.ops import samples

SAMPLED = set(
    "add addmm cat nn.functional.layer_norm nn.functional.gelu sum var_mean softmax cumsum scatter_add index_put"
    " argmax where nn.functional.conv2d nn.functional.interpolate.bilinear gather"
    " sort logsumexp nn.functional.cross_entropy floor_divide clamp".split()
)
STEP = 9  # of the operators on the interpreting target, every ninth is judged in an ordinary run
DTYPES = [getattr(torch, d) for d in samples.DTYPES]
FEW = [torch.float32, torch.int64, torch.bfloat16]
GRADGRAD = [i for i in op_db if i.supports_gradgrad]


def name_of(info):
    return info.name + (f".{info.variant_test_name}" if getattr(info, "variant_test_name", "") else "")


def rows(infos, chosen):
    """The chosen rows run always, the others with --full."""
    return [
        pytest.param(i, id=name_of(i), marks=() if chosen(k, i) else pytest.mark.slow) for k, i in enumerate(infos)
    ]


def every(step):
    return lambda k, info: k % step == 0


def assert_right(found):
    wrong = [(label, problem) for label, problem in found if problem]
    assert not wrong, wrong[:5]


@pytest.fixture
def full(request):
    return request.config.getoption("--full")


@pytest.mark.parametrize("info", rows(op_db, lambda k, info: name_of(info) in SAMPLED))
def test_operator_in_generated_code(info, full):
    cases = list(samples.cases_of(info, DTYPES if full else FEW, list(samples.LAYOUTS), 5 if full else 2))
    assert_right(checks.check(cases, "inductor"))


@pytest.mark.parametrize("info", rows(op_db, every(STEP)))
def test_operator(info, full):
    cases = list(samples.cases_of(info, DTYPES if full else FEW, list(samples.LAYOUTS), 10 if full else 1))
    assert_right(checks.check(cases, "reference"))


@pytest.mark.parametrize("variant", samples.VARIANTS[1:])
@pytest.mark.parametrize("info", rows(op_db, every(5 * STEP)))
def test_variant(info, variant, full):
    cases = list(samples.cases_of(info, DTYPES if full else FEW, list(samples.LAYOUTS), 5 if full else 1, variant))
    assert_right(checks.check(cases, "reference"))


@pytest.mark.parametrize("info", rows(op_db, every(5 * STEP)))
def test_symbolic_sizes(info, full):
    cases = list(samples.cases_of(info, [torch.float32], ["plain"], 1000))
    assert_right(checks.check_dynamic(cases, "reference", 8 if full else 1))


@pytest.mark.parametrize("info", rows(GRADGRAD, every(3 * STEP)))
def test_second_gradient(info, full):
    cases = list(samples.cases_of(info, [torch.float64], list(samples.LAYOUTS), 5 if full else 1))
    assert_right(checks.check(cases, "reference", twice=True))


@pytest.mark.parametrize("info", rows([i for i in op_db if i.error_inputs_func is not None], every(2 * STEP)))
def test_error_inputs(info):
    assert_right(checks.check_errors(list(samples.error_cases(info)), "reference"))


@pytest.mark.parametrize("info", rows(module_db, every(STEP)))
def test_module(info, full):
    cases = list(samples.module_cases(info, [torch.float32, torch.bfloat16], 5 if full else 1))
    assert_right(checks.check(cases, "reference"))
