"""``mode="reduce-overhead"``: replay a compiled graph's launches as one CUDA graph.

Nothing is copied that need not be. A recording belongs to the addresses of the inputs it was made with: parameters
and buffers keep theirs, and a caller that reuses its input
tensors does too. An input whose address keeps changing gets a buffer of its own, and only that input is copied, once
per call.

What a replay hands out stays valid: a recording is replayed only when nobody holds results of its last replay any
more. While someone does, another recording (a few at most) or
the plain launches serve the call. So there is no error about memory overwritten by a later run, and never a wrong
number.

A graph that cannot be recorded (a CPU tensor among the inputs, an op that synchronises, symbolic sizes) runs plainly,
and so does one whose first recording is measured and found slower than plain launches; `CudaGraphRunner.reason` says
why.

Callers go through `CudaGraphRunner.unboxed`: a native object that knows the recordings, compares addresses and
launches; this Python code is what it calls when none of them fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import cuda_driver
from ._torch import is_capturing, philox_offset, use_count
from .runtime import native

MAX_RECORDINGS = 4
MAX_SHAPES = 8
MOVES_BEFORE_COPY = 2  # how often an input's address may change before it is copied into a buffer of its own
PLAIN_BEFORE_GIVING_UP = 64  # calls that could not be replayed, if they are the most
MEASURED_ROUNDS = 5  # of a plain run and a replay each, and no more than `MEASURED_SECONDS` of them
MEASURED_SECONDS = 0.05
SLOWER = 1.05
_data_ptr = torch.Tensor.data_ptr


def call_seconds(run: Callable[[], object]) -> float:
    """Seconds from an idle device to an idle device."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


class Recording:
    """One captured CUDA graph with the storages of its outputs."""

    def __init__(self, graph: Any, addresses: tuple, outputs: list, inputs: list) -> None:
        self.graph = graph
        self.addresses = addresses
        self.outputs = outputs
        self.inputs = inputs  # keeps what was recorded alive only where it is our own buffer
        self.tensors_only = all(isinstance(o, torch.Tensor) for o in outputs)
        self.storages = [o.untyped_storage() for o in outputs if isinstance(o, torch.Tensor)]
        self.counts = [(s._cdata, use_count(s._cdata)) for s in self.storages]
        self.native: tuple | None = None  # arguments of `ReplayCall.add`, where the native object may replay this

    def is_free(self) -> bool:
        """True if nobody outside holds a result of the last replay."""
        for address, count in self.counts:
            if use_count(address) > count:
                return False
        return True


class CudaGraphRunner:
    """Calls `run` plainly at first, then by replay. Outputs are new tensor objects on every call.

    Shapes never change; numbers among the inputs are taken to be the same in every call if `fixed_numbers`.
    """

    def __init__(
        self,
        run: Callable[..., Sequence[Any]],
        device: torch.device,
        fixed_numbers: bool = False,
        driver: cuda_driver.ReplayFunctions | None = None,
        count: int = 0,
        clock: Callable[[Callable[[], object]], float] | None = None,
    ) -> None:
        """`driver`: functions of the device's driver for native replays of a graph with `count` inputs; None: replay
        from Python. `clock`: what the first recording is compared with plain launches by (only for a graph that may be
        run again for nothing)."""
        self._run = run
        self._device = device
        self._fixed_numbers = fixed_numbers
        self.source = getattr(run, "source", "")
        self._recordings: list[Recording] = []
        self._last: tuple | None = None
        self._moves: list[int] = []
        self._copied: dict[int, torch.Tensor] = {}
        self._plain_addresses = False  # every input is a tensor that is used where it lies
        self.reason: str | None = None
        self._clock = clock
        self._replays = 0
        self._plain = 0
        self._native: Any = None
        if driver is not None:
            self._native = native().make_replay(self.__call__, use_count, count, device.index or 0, *driver)
        self.unboxed: Callable[..., Sequence[Any]] = self._native or self.__call__

    @property
    def replays(self) -> int:
        """How often a recording was replayed."""
        return self._replays + (self._native.replays if self._native is not None else 0)

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if self.reason is not None or is_capturing():
            return self._run(*inputs)
        if not self._moves:
            why = self._refusal(inputs)
            if why is not None:
                self.reason = why
                return self._run(*inputs)
            self._moves = [0] * len(inputs)
            self._plain_addresses = all(isinstance(x, torch.Tensor) for x in inputs)
        addresses = tuple(map(_data_ptr, inputs)) if self._plain_addresses else self._addresses(inputs)
        last, self._last = self._last, addresses
        if self._plain >= PLAIN_BEFORE_GIVING_UP and self._plain > self.replays:
            self.reason = "most calls could not be replayed: inputs move, or results are held for long"
            self._recordings.clear()
            self._tell_native()
            return self._run(*inputs)
        for r in self._recordings:
            if r.addresses == addresses and r.is_free():
                return self._replay(r, inputs)
        if last is None:
            return self._run(*inputs)
        if last != addresses:
            self._note_moves(last, addresses, inputs)
            self._plain += 1
            return self._run(*inputs)
        if len(self._recordings) >= MAX_RECORDINGS:
            stale = next((r for r in self._recordings if r.addresses != addresses and r.is_free()), None)
            if stale is None:
                self._plain += 1
                return self._run(*inputs)
            self._recordings.remove(stale)
            self._tell_native()
        return self._record(addresses, inputs)

    def _refusal(self, inputs: Sequence[Any]) -> str | None:
        for k, x in enumerate(inputs):
            if not isinstance(x, torch.Tensor):
                if self._fixed_numbers:
                    continue
                return f"input {k} is a number that may change"
            if x.device != self._device:
                return f"input {k} is on {x.device}, not on {self._device}"
        return None

    def _addresses(self, inputs: Sequence[Any]) -> tuple:
        return tuple(
            None if k in self._copied else x.data_ptr() if isinstance(x, torch.Tensor) else x
            for k, x in enumerate(inputs)
        )

    def _note_moves(self, last: tuple, now: tuple, inputs: Sequence[torch.Tensor]) -> None:
        for k, (a, b) in enumerate(zip(last, now)):
            if a != b:
                self._moves[k] += 1
                if self._moves[k] >= MOVES_BEFORE_COPY:
                    x = inputs[k]
                    self._plain_addresses = False
                    self._copied[k] = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
                    self._recordings.clear()
                    self._tell_native()
                    self._last = None

    def _fill(self, inputs: Sequence[torch.Tensor]) -> None:
        for k, buffer in self._copied.items():
            buffer.copy_(inputs[k])

    def _actual(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [self._copied.get(k, x) for k, x in enumerate(inputs)]

    def _record(self, addresses: tuple, inputs: Sequence[torch.Tensor]) -> Sequence[Any]:
        self._fill(inputs)
        graph = torch.cuda.CUDAGraph()
        try:
            # memory of its own: in a common pool one recording's intermediates may lie where another one's results do,
            # and a replay would write over results that someone still holds
            with torch.no_grad(), torch.cuda.graph(graph):
                outputs = list(self._run(*self._actual(inputs)))
        except RuntimeError as e:
            self.reason = f"recording failed: {str(e).splitlines()[0][:200]}"
            torch.cuda.synchronize()
            return self._run(*inputs)
        aliases = {x.untyped_storage().data_ptr() for x in inputs if isinstance(x, torch.Tensor)}
        if any(isinstance(o, torch.Tensor) and o.untyped_storage().data_ptr() in aliases for o in outputs):
            self.reason = "an output shares memory with an input"
            return self._run(*inputs)
        recording = Recording(graph, addresses, outputs, list(self._copied.values()))
        self._recordings.append(recording)
        before = philox_offset(self._device)
        results = self._replay(recording, inputs)
        # a graph that draws random numbers gets its seed from torch at each replay
        if philox_offset(self._device) != before:
            return results
        if self._clock is not None:
            self.reason = self._compare(recording, inputs, self._clock)
            self._clock = None
            if self.reason is not None:
                self._recordings.clear()
                self._tell_native()
                return self._run(*inputs)
        if self._native is not None:
            recording.native = self._native_arguments(recording, inputs)
            self._tell_native()
        return results

    def _compare(
        self, r: Recording, inputs: Sequence[torch.Tensor], clock: Callable[[Callable[[], object]], float]
    ) -> str | None:
        """Why plain launches are to serve all calls; None where replays are not slower. Nobody holds results yet."""

        def replay() -> None:
            self._fill(inputs)
            r.graph.replay()

        plain = replayed = float("inf")
        spent = 0.0
        for _ in range(MEASURED_ROUNDS):
            times = clock(lambda: self._run(*inputs)), clock(replay)
            plain, replayed = min(plain, times[0]), min(replayed, times[1])
            spent += sum(times)
            if spent > MEASURED_SECONDS:
                break
        if replayed <= SLOWER * plain:
            return None
        return f"a replay takes {replayed * 1e6:.0f} us, plain launches {plain * 1e6:.0f} us"

    def _native_arguments(self, r: Recording, inputs: Sequence[Any]) -> tuple | None:
        """(exec, addresses, copies, outputs, storages) as the native object takes them."""
        handle = getattr(r.graph, "raw_cuda_graph_exec", None)
        if handle is None:  # a torch that keeps it to itself
            return None
        addresses = tuple(
            x.data_ptr() if isinstance(x, torch.Tensor) and k not in self._copied else 0 for k, x in enumerate(inputs)
        )
        copies = tuple((k, b.data_ptr(), b.untyped_storage().nbytes()) for k, b in self._copied.items())
        return handle(), addresses, copies, tuple(r.outputs), tuple(r.counts)

    def _tell_native(self) -> None:
        if self._native is not None:
            self._native.clear()
            for r in self._recordings:
                if r.native is not None:
                    self._native.add(*r.native)

    def _replay(self, r: Recording, inputs: Sequence[torch.Tensor]) -> Sequence[Any]:
        if self._copied:
            self._fill(inputs)
        r.graph.replay()
        self._replays += 1
        if r.tensors_only:
            return [o.detach() for o in r.outputs]
        return [o.detach() if isinstance(o, torch.Tensor) else o for o in r.outputs]


class ShapedRunners:
    """For a graph with size symbols: recordings of their own for each combination of shapes (`MAX_SHAPES` of them; the
    others run plainly)."""

    def __init__(
        self,
        run: Callable[..., Sequence[Any]],
        device: torch.device,
        driver: cuda_driver.ReplayFunctions | None = None,
        count: int = 0,
        clock: Callable[[Callable[[], object]], float] | None = None,
    ) -> None:
        self._run = run
        self._device = device
        self._native = driver, count, clock
        self.source = getattr(run, "source", "")
        self.runners: dict[tuple, CudaGraphRunner] = {}

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        key = tuple([(x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in inputs])
        runner = self.runners.get(key)
        if runner is None:
            if len(self.runners) >= MAX_SHAPES:
                return self._run(*inputs)
            runner = self.runners[key] = CudaGraphRunner(self._run, self._device, True, *self._native)
        return runner.unboxed(*inputs)
