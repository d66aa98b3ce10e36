"""What a graph's own error does to the program: handlers, effects, the line that is named."""

import sys
import traceback

import pytest
import torch

import lamina_dynamo
from lamina_dynamo import optimize


def outcome(fn, *args):
    try:
        return "returned", fn(*args)
    except Exception as e:
        return type(e).__name__, str(e)


def same(program, *inputs, **options):
    """Both ways, with fresh logs; results, errors and logs must agree."""
    compiled = optimize("eager", **options)(program)
    for args in inputs:
        logs = [], []
        want, got = (outcome(f, *args, log) for f, log in zip((program, compiled), logs))
        assert got[0] == want[0], (want, got)
        assert repr(got) == repr(want)
        assert logs[0] == logs[1]


takes_over = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="before 3.11 blocks run in eager, and a graph's error leaves the frame"
)
GOOD, BAD = torch.tensor([0]), torch.tensor([5])


def handled(x, i, log):
    log.append("before")
    try:
        y = x[i]
        log.append("taken")
    except IndexError as e:
        y = x * 2
        log.append(type(e).__name__)
    else:
        log.append("else")
    finally:
        log.append("finally")
    return y + 1


def test_a_handler_in_the_frame_is_reached():
    same(handled, (torch.ones(2), GOOD), (torch.ones(2), BAD), (torch.ones(2), GOOD))


class Span:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")

    def __exit__(self, kind, value, where):
        self.log.append(("exit", kind and kind.__name__))
        return kind is IndexError


def in_a_block(x, i, log):
    with Span(log):
        return torch.index_select(x, 0, i)
    return "left early"


def called(x, i, log):
    def pick(v):
        return torch.gather(v, 0, i)

    for factor in (1, 2):
        try:
            x = pick(x * factor)
        except RuntimeError:
            log.append(factor)
    return x


def retried(x, scale, log):
    for k in range(4):
        try:
            return torch.linalg.cholesky(x + scale * 10**k * torch.eye(2)), k
        except torch.linalg.LinAlgError:
            log.append(k)
    return None


def is_positive_definite(x, scale, log):
    try:
        torch.linalg.cholesky(x * scale)
        log.append("yes")
        return True, x + 1
    except RuntimeError:
        return False, x + 1


def test_blocks_and_callers():
    same(in_a_block, (torch.ones(2), GOOD), (torch.ones(2), BAD))
    same(called, (torch.ones(2), GOOD), (torch.ones(2), BAD))
    same(retried, (torch.eye(2), 0.01), (-0.5 * torch.eye(2), 0.01))
    same(is_positive_definite, (torch.eye(2), 1.0), (torch.eye(2), -1.0))


def test_after_a_break():
    def program(x, i, log):
        lamina_dynamo.graph_break()
        log.append("resumed")
        try:
            return x[i] * 2
        except IndexError:
            log.append("handled")
            return x

    same(program, (torch.ones(2), GOOD), (torch.ones(2), BAD))


@takes_over
def test_effects_before_the_error_are_kept():
    class Counter:
        n = 0

    def program(x, i, log):
        Counter.n += 1
        log.append(Counter.n)
        y = x[i]
        log.append("not reached")
        return y

    compiled = optimize("eager")(program)
    for i, text in ((GOOD, "returned"), (BAD, "IndexError"), (BAD, "IndexError"), (GOOD, "returned")):
        log = []
        assert outcome(compiled, torch.ones(2), i, log)[0] == text
        assert log[0] == Counter.n
    assert Counter.n == 4


def test_the_random_stream_goes_on_as_in_eager():
    def program(x, i, log):
        y = x + torch.rand(2)
        try:
            return y[i]
        except IndexError:
            return y + torch.rand(2)

    for i in (GOOD, BAD):
        torch.manual_seed(3)
        want = program(torch.ones(2), i, []), torch.rand(1)
        torch.manual_seed(3)
        got = optimize("eager")(program)(torch.ones(2), i, []), torch.rand(1)
        assert repr(got) == repr(want)


def inner(x, i):
    return torch.index_select(x, 0, i)  # the line that fails


@takes_over
def test_the_users_line_is_named():
    compiled = optimize("eager")(lambda x, i: inner(x * 2, i) + 1)
    compiled(torch.ones(2), GOOD)
    with pytest.raises(IndexError) as caught:
        compiled(torch.ones(2), BAD)
    assert "the line that fails" in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


def test_written_inputs_are_not_written_twice():
    def program(x, i):
        x.add_(1)
        try:
            return x[i]
        except IndexError:
            return x

    compiled = optimize("eager")(program)
    compiled(torch.ones(2), GOOD)
    x = torch.ones(2)
    with pytest.raises(IndexError):
        compiled(x, BAD)
    assert x.tolist() == [2.0, 2.0]


def test_a_fault_of_the_backend_is_not_hidden():
    def broken(gm, inputs):
        def run(*args):
            raise ValueError("broken backend")

        return run

    with pytest.raises(ValueError, match="broken backend"):
        optimize(broken)(lambda x: x + 1)(torch.ones(2))


def test_arguments_of_every_kind_and_cells():
    offset = torch.ones(1)

    def program(x, /, i, *rest, log, **named):
        def shifted():
            return x + offset

        log.append(len(rest))
        try:
            y = shifted()[i]
        except IndexError:
            y = shifted() * named["k"]
        return y, rest, named

    compiled = optimize("eager")(program)
    for i in (GOOD, BAD):
        want = program(torch.ones(2), i, 1, 2, log=[], k=3)
        assert repr(compiled(torch.ones(2), i, 1, 2, log=[], k=3)) == repr(want)


def test_a_checkpoint_around_the_call_may_stop_its_recomputation_early():
    from torch.utils.checkpoint import checkpoint

    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    grads = []
    for call in (layers, lamina_dynamo.optimize(backend="eager")(layers.forward)):
        layers.zero_grad()
        x = torch.ones(2, 4, requires_grad=True)
        checkpoint(call, x, use_reentrant=False).sum().backward()
        grads.append([x.grad, *(p.grad.clone() for p in layers.parameters())])
    for expected, got in zip(*grads):
        torch.testing.assert_close(got, expected)
