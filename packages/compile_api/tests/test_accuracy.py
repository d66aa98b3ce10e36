"""What `lamina.check` counts as a difference: errors against float64, on the scale of each tensor."""

import torch

from lamina.accuracy import Outcome, differences

EPS = torch.finfo(torch.float32).eps


def judged(kind, want, got, exact):
    outcomes = []
    for values in (want, got, exact):
        outcome = Outcome()
        setattr(outcome, kind, list(values))
        outcomes.append(outcome)
    return differences(*outcomes)


def ramp(scale, dtype=torch.float64):
    return (torch.arange(1.0, 9.0, dtype=torch.float64) * scale / 8).to(dtype)


def single(x):
    return x.float()


def test_rounding_in_another_order_passes():
    exact = ramp(3.0)
    assert not judged("values", [single(exact)], [single(exact * (1 + 10 * EPS))], [exact])


def test_more_than_rounding_and_more_than_twice_eagers_error_does_not():
    exact = ramp(3.0)
    found = judged("values", [single(exact)], [single(exact * (1 + 40 * EPS))], [exact])
    assert len(found) == 1 and "compiled" in found[0]
    bad_eager = single(exact * (1 + 40 * EPS))
    assert not judged("values", [bad_eager], [single(exact * (1 - 80 * EPS))], [exact])
    assert judged("values", [bad_eager], [single(exact * (1 + 200 * EPS))], [exact])


def test_a_small_tensor_is_not_hidden_by_a_large_one():
    small, large = ramp(1e-2), ramp(1e4)
    for kind in ("values", "gradients"):
        found = judged(
            kind, [single(small), single(large)], [single(small * 1.5), single(large)], [small, large]
        )
        assert len(found) == 1 and found[0].startswith(f"{kind[:-1]} 0")


def test_a_gradient_that_is_zero_but_for_rounding():
    """The bias before a batch norm: noise on the scale of the terms that cancel, drawn anew."""
    zero, large = ramp(1e-17), ramp(2.0)
    noise = torch.tensor([1e-8, -3e-8, 2e-8, 0, 0, 0, 0, 0])
    assert not judged("gradients", [noise, single(large)], [-3 * noise, single(large)], [zero, large])
    assert judged("gradients", [noise, single(large)], [300 * noise, single(large)], [zero, large])
    assert judged("values", [torch.zeros(8), single(large)], [3 * noise, single(large)], [zero, large])


def test_half_precision_is_rounded_once():
    exact = ramp(1.0)
    half = exact.bfloat16()
    assert not judged("values", [half], [(exact * (1 + 2**-8)).bfloat16()], [exact])
    assert judged("values", [half], [(exact * 1.05).bfloat16()], [exact])


def test_without_float64_the_tolerance_of_the_dtype_holds():
    want = single(ramp(1.0))
    assert not judged("values", [want], [want * (1 + 1e-5)], [])
    assert judged("values", [want], [want * (1 + 1e-4)], [])
    double = ramp(1.0)
    assert not judged("values", [double], [double * (1 + 1e-11)], [double])
    assert judged("values", [double], [double * (1 + 1e-8)], [double])
