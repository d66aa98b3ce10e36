"""Native replays: the calls that reach the recording, and those that go back to Python, with stand-ins for the
driver's functions."""

import ctypes

import pytest
import torch
from test_cuda_graphs import CPU, check, program  # noqa: F401

from lamina_inductor import cuda_graphs
from lamina_inductor.cuda_driver import ReplayFunctions
from lamina_inductor.cuda_graphs import CudaGraphRunner

EXEC = 77


class Driver:
    """Counts what a native replay asks of the driver; a launch computes the recorded program again."""

    def __init__(self, recorded):
        self.recorded = recorded
        self.launched, self.busy, self.code, self.copies = 0, 0, 0, []
        at = ctypes.c_void_p
        self.functions = [
            ctypes.CFUNCTYPE(ctypes.c_int, at, at)(self.launch),
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(at))(self.stream),
            ctypes.CFUNCTYPE(ctypes.c_int, at, ctypes.POINTER(ctypes.c_int))(self.capturing),
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, at)(self.copy),
        ]
        self.addresses = ReplayFunctions(*(ctypes.cast(f, at).value for f in self.functions))

    def launch(self, graph, stream):
        assert (graph, stream) == (EXEC, 5)
        if not self.code:
            self.launched += 1
            self.recorded().replay()
        return self.code

    def stream(self, device, out):
        out[0] = 5
        return 0

    def capturing(self, stream, out):
        out[0] = self.busy
        return 0

    def copy(self, to, source, size, stream):
        self.copies.append(size)
        ctypes.memmove(to, source, size)
        return 0


@pytest.fixture
def made(program, monkeypatch):  # noqa: F811
    monkeypatch.setattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec", lambda self: EXEC, raising=False)
    driver = Driver(lambda: runner._recordings[-1].graph)
    runner = CudaGraphRunner(program, CPU, driver=driver.addresses, count=2)
    return runner, driver, program


def call(runner, *inputs):
    return check(runner.unboxed, *inputs)


def test_calls_with_the_same_inputs_are_one_launch(made):
    runner, driver, recorded = made
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    for k in range(6):
        x.fill_(float(k))
        out = call(runner, x, w)
        assert out[0].shape == (3, 5) and not out[0].requires_grad
        del out
    assert recorded.calls == 1 and driver.launched == 4 and runner.replays == 5


def test_held_results_are_not_written_over(made):
    runner, driver, recorded = made
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    held = []
    for k in range(9):
        x.fill_(float(k))
        held.append((call(runner, x, w), x @ w))
    for (got, _), want in held:
        torch.testing.assert_close(got, want)


def test_what_moves_is_copied_by_the_device(made):
    runner, driver, recorded = made
    w, alive = torch.randn(4, 5), []
    for _ in range(12):
        alive.append(torch.randn(3, 4))
        call(runner, alive[-1], w)
    assert driver.launched and set(driver.copies) == {48}


def test_other_streams_states_go_to_python(made):
    runner, driver, recorded = made
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    for _ in range(3):
        call(runner, x, w)
    before = driver.launched
    driver.busy = 1
    call(runner, x, w)
    driver.busy, driver.code = 0, 201
    call(runner, x, w)
    assert driver.launched == before
    driver.code = 0
    call(runner, x, w)
    assert driver.launched == before + 1


def test_a_graph_that_draws_random_numbers_is_replayed_by_torch(made, monkeypatch):
    runner, driver, recorded = made
    drawn = iter(range(100))
    monkeypatch.setattr(cuda_graphs, "philox_offset", lambda device: next(drawn))
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    for _ in range(6):
        call(runner, x, w)
    assert runner.replays == 5 and not driver.launched


def test_a_wrong_number_of_addresses_is_refused(made):
    runner, driver, recorded = made
    with pytest.raises(ValueError, match="one address for each input"):
        runner._native.add(EXEC, (1,), (), (), ())
