"""Random numbers drawn again: a checkpointed region that draws keeps the generator's state, as eager's does, and not
what was drawn.

The forward graph reads the state before a region's first draw. In the backward graph each draw stands between two
`exchange_rng_state`: the first puts the saved state in place and gives the one that was there, the second puts that
back and gives the state behind the draw, from which the region's next draw goes on. A CUDA device has a generator of
its own; its state lies in host memory, too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from ..schemas import JointGraph

_library = torch.library.Library("lamina_aot", "DEF")
_tags = (torch.Tag.nondeterministic_seeded,)  # never dropped, merged, or moved over another draw
_library.define("rng_state() -> Tensor", tags=_tags)
_library.define("exchange_rng_state(Tensor state) -> Tensor", tags=_tags)
_library.define("cuda_rng_state(int index) -> Tensor", tags=_tags)
_library.define("exchange_cuda_rng_state(Tensor state, int index) -> Tensor", tags=_tags)


def _exchange(state: torch.Tensor) -> torch.Tensor:
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    return before


def _exchange_cuda(state: torch.Tensor, index: int) -> torch.Tensor:
    before = torch.cuda.get_rng_state(index)
    torch.cuda.set_rng_state(state, index)
    return before


_library.impl("rng_state", lambda: torch.get_rng_state(), "CompositeExplicitAutograd")
_library.impl("exchange_rng_state", _exchange, "CPU")
_library.impl("exchange_rng_state", lambda state: torch.empty_like(state), "Meta")
_library.impl("cuda_rng_state", lambda index: torch.cuda.get_rng_state(index), "CompositeExplicitAutograd")
_library.impl("exchange_cuda_rng_state", _exchange_cuda, "CPU")
_library.impl("exchange_cuda_rng_state", lambda state, index: torch.empty_like(state), "Meta")

read_state: Any = torch.ops.lamina_aot.rng_state.default
exchange_state: Any = torch.ops.lamina_aot.exchange_rng_state.default
read_cuda_state: Any = torch.ops.lamina_aot.cuda_rng_state.default
exchange_cuda_state: Any = torch.ops.lamina_aot.exchange_cuda_rng_state.default
READS = (read_state, read_cuda_state)
CUDA_STATE_BYTES = 16  # seed and offset of a Philox generator

STATE = "replay_state"
"""Key in the meta of a draw that may be replayed: the node that reads its region's state."""
PREVIOUS = "replay_after"
"""Key beside it: the region's draw before this one, or None."""


def note_replays(joint: JointGraph) -> None:
    """Prepare the draws of checkpointed regions of `joint` for replay, once. A region is left as it is, and what it
    draws is saved, if it draws on several devices or on one that is neither the CPU nor of CUDA, or if its states
    would be larger than what is drawn.
    """
    from .cost import bytes_of
    from .extract import is_forward, is_random

    regions: dict[int, list[fx.Node]] = {}
    for node in joint.graph.nodes:
        number = node.meta.get("checkpoint")
        if number is not None and is_forward(node) and STATE not in node.meta and is_random(node):
            regions.setdefault(number, []).append(node)
    for draws in regions.values():
        device = _device_of(draws)
        if device is None:
            continue
        size = CUDA_STATE_BYTES if device.type == "cuda" else torch.get_rng_state().numel()
        if sum(map(bytes_of, draws)) <= size:
            continue
        with joint.graph.inserting_before(draws[0]):
            if device.type == "cuda":
                state = joint.graph.call_function(read_cuda_state, (device.index or 0,))
            else:
                state = joint.graph.call_function(read_state)
        state.meta.update(val=_state_value(size), partition="forward")
        for key in ("seq_nr", "stack_trace"):
            if key in draws[0].meta:
                state.meta[key] = draws[0].meta[key]
        previous = None
        for node in draws:
            node.meta[STATE], node.meta[PREVIOUS] = state, previous
            previous = node


def _device_of(draws: list[fx.Node]) -> torch.device | None:
    """The device whose generator all of these draw from, if they may be made again."""
    devices = set()
    for node in draws:
        val = node.meta.get("val")
        values = val if isinstance(val, (list, tuple)) else [val]
        if not isinstance(node.target, OpOverload) or not all(isinstance(v, torch.Tensor) for v in values):
            return None
        devices |= {v.device for v in values}
    device = devices.pop()
    return None if devices or device.type not in ("cpu", "cuda") else device


def _state_value(size: int) -> torch.Tensor:
    from ..trace.tensor import make_value

    return make_value((size,), (1,), torch.uint8, torch.device("cpu"))


def is_replayed(node: fx.Node) -> bool:
    """True for a draw that the backward may make again."""
    return STATE in node.meta


def replay_needs(node: fx.Node) -> list[fx.Node]:
    """What a replayed draw needs besides its arguments."""
    previous = node.meta[PREVIOUS]
    return [node.meta[STATE] if previous is None else previous]


class Replays:
    """Writes replayed draws into a backward graph."""

    def __init__(self, graph: fx.Graph, env: dict[fx.Node, fx.Node]) -> None:
        self.graph = graph
        self.env = env
        self.behind: dict[fx.Node, fx.Node] = {}  # draw -> the state behind it

    def _exchange(self, state: fx.Node, like: fx.Node) -> fx.Node:
        read = like.meta[STATE]
        if read.target is read_cuda_state:
            node = self.graph.call_function(exchange_cuda_state, (state, *read.args))
        else:
            node = self.graph.call_function(exchange_state, (state,))
        node.meta.update({k: v for k, v in like.meta.items() if k in ("seq_nr", "stack_trace")})
        node.meta.update(val=_state_value(state.meta["val"].shape[0]), partition="backward")
        return node

    def put(self, node: fx.Node, copy: Any) -> None:
        """`copy()` adds the draw itself."""
        previous = node.meta[PREVIOUS]
        state = self.env[node.meta[STATE]] if previous is None else self.behind[previous]
        before = self._exchange(state, node)
        copy()
        self.behind[node] = self._exchange(before, node)
