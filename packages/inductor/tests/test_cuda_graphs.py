"""The logic of recording and replaying, with a stand-in for the device's graphs."""

import contextlib

import pytest
import torch

from lamina_inductor import cuda_graphs
from lamina_inductor.cuda_graphs import (
    MAX_RECORDINGS,
    MAX_SHAPES,
    PLAIN_BEFORE_GIVING_UP,
    CudaGraphRunner,
    ShapedRunners,
)

CPU = torch.device("cpu")


class Graph:
    """Replays by computing again from the recorded inputs into the recorded outputs."""

    def replay(self):
        for out, new in zip(self.outputs, self.program(*self.inputs)):
            out.copy_(new)


class Program:
    """Counts plain calls; tells the graph that is being recorded what to replay."""

    source = "text"

    def __init__(self, fn=lambda x, w: [x @ w, x + 1]):
        self.fn = fn
        self.calls = 0
        self.recording = None

    def __call__(self, *inputs):
        out = self.fn(*inputs)
        if self.recording is not None:
            self.recording.program, self.recording.inputs, self.recording.outputs = self.fn, inputs, out
        else:
            self.calls += 1
        return out


@pytest.fixture
def program(monkeypatch):
    made = Program()

    @contextlib.contextmanager
    def record(graph):
        made.recording = graph
        yield
        made.recording = None

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return made


def check(runner, *inputs):
    got = runner(*inputs)
    torch.testing.assert_close(got[0], inputs[0] @ inputs[1])
    torch.testing.assert_close(got[1], inputs[0] + 1)
    return got


def test_inputs_that_stay_are_replayed_without_copies(program):
    runner = CudaGraphRunner(program, CPU)
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    for k in range(6):
        x.fill_(float(k))
        check(runner, x, w)
    assert program.calls == 1 and runner.replays == 5
    assert not runner._copied


@pytest.mark.parametrize("replayed", [0.5, 1.0, 2.0])
def test_replays_that_are_measured_slower_give_way_to_plain_launches(program, replayed):
    times = iter([1.0, replayed] * 10)

    def clock(run):
        run()
        return next(times)

    runner = CudaGraphRunner(program, CPU, clock=clock)
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    held = []
    for k in range(8):
        x.fill_(float(k))
        held.append(check(runner, x, w)[0].clone())
    assert (runner.reason is not None) == (replayed > 1.05)
    assert bool(runner._recordings) == (replayed <= 1.05)
    for k, got in enumerate(held):
        torch.testing.assert_close(got, torch.full((3, 4), float(k)) @ w)


def test_only_the_input_that_moves_is_copied(program):
    runner = CudaGraphRunner(program, CPU)
    w, alive = torch.randn(4, 5), []
    for _ in range(10):
        alive.append(torch.randn(3, 4))
        check(runner, alive[-1], w)
    assert list(runner._copied) == [0]
    assert runner.replays >= 5


def test_results_that_are_held_are_never_written_over(program):
    runner = CudaGraphRunner(program, CPU)
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    held = []
    for k in range(MAX_RECORDINGS + 6):
        x.fill_(float(k))
        held.append((check(runner, x, w), x @ w))
    for got, want in held:
        torch.testing.assert_close(got[0], want)
    assert len(runner._recordings) == MAX_RECORDINGS
    held.clear()
    before = runner.replays
    check(runner, x, w)
    assert runner.replays == before + 1


def test_each_recording_has_memory_of_its_own(program, monkeypatch):
    taken = []

    @contextlib.contextmanager
    def record(graph, **kwargs):
        taken.append(kwargs)
        program.recording = graph
        yield
        program.recording = None

    monkeypatch.setattr(torch.cuda, "graph", record)
    runner = CudaGraphRunner(program, CPU)
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    held = [runner(x, w) for _ in range(4)]
    assert len(held) == 4 and len(taken) >= 2 and not any(k.get("pool") for k in taken)


@pytest.mark.parametrize("bad, word", [(3, "number"), (torch.ones(2, device="meta"), "meta")])
def test_what_cannot_be_recorded_runs_plainly_and_says_why(program, bad, word):
    program.fn = lambda x, other: [x * 2]
    runner = CudaGraphRunner(program, CPU)
    for _ in range(4):
        runner(torch.ones(2), bad)
    assert program.calls == 4 and word in runner.reason


def test_a_recording_that_fails_falls_back(program, monkeypatch):
    @contextlib.contextmanager
    def record(graph):
        raise RuntimeError("operation not permitted when stream is capturing")
        yield

    monkeypatch.setattr(torch.cuda, "graph", record)
    runner = CudaGraphRunner(program, CPU)
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    for _ in range(4):
        check(runner, x, w)
    assert "recording failed" in runner.reason


def test_an_output_that_is_an_input_is_not_recorded(program):
    program.fn = lambda x, w: [x.view(-1)]
    runner = CudaGraphRunner(program, CPU)
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    for _ in range(4):
        runner(x, w)
    assert "shares memory" in runner.reason


def test_inside_another_recording_the_plain_call_is_made(program, monkeypatch):
    monkeypatch.setattr(cuda_graphs, "is_capturing", lambda: True)
    runner = CudaGraphRunner(program, CPU)
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    for _ in range(4):
        check(runner, x, w)
    assert program.calls == 4


def test_shapes_have_recordings_of_their_own(program):
    runner = ShapedRunners(program, CPU)
    w = torch.randn(4, 5)
    xs = [torch.randn(n, 4) for n in range(1, MAX_SHAPES + 4)]
    for _ in range(5):
        for x in xs:
            check(runner, x, w)
    assert len(runner.runners) == MAX_SHAPES
    assert all(r.replays == 4 for r in runner.runners.values())


def test_numbers_of_a_shape_are_part_of_it(program):
    program.fn = lambda x, n: [x * n]
    runner = ShapedRunners(program, CPU)
    x = torch.randn(3)
    for n in (2, 3, 2, 3, 2, 3, 2, 3):
        torch.testing.assert_close(runner(x, n)[0], x * n)
    assert len(runner.runners) == 2 and all(r.replays for r in runner.runners.values())


def test_what_can_rarely_be_replayed_is_given_up(program):
    runner = CudaGraphRunner(program, CPU)
    x, w, held = torch.randn(3, 4), torch.randn(4, 5), []
    for _ in range(3 * PLAIN_BEFORE_GIVING_UP):
        held.append(check(runner, x, w))
    assert "most calls" in runner.reason and not runner._recordings
    assert runner.replays <= MAX_RECORDINGS + 1
