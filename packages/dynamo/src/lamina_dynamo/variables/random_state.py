"""States of torch's random generators: read, set, forked, and generators of the program's own.

Each call is a node of the graph, in program order with the ops that draw. A backend that traces runs them for real
between what it compiles.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import higher_order
from ..fake import Fake
from ..graph_break import GraphBreak
from .base import VariableTracker
from .builder import wraps_type
from .builtin import CONSTRUCTORS
from .constant import ConstantVariable, fold
from .owner_method import OwnerMethodVariable
from .tensor import TensorVariable
from .tensor_state import make_node
from .torch_api import handles


def _state_like(generator: torch.Generator) -> Fake:
    n = generator.get_state().numel()
    return Fake.make((n,), (1,), torch.uint8, torch.device("cpu"))


class GeneratorVariable(VariableTracker):
    """A ``torch.Generator``; ``fake`` is a generator of the same device that nothing draws from."""

    __slots__ = ("node", "fake", "real")

    def __init__(self, node: Any, fake: torch.Generator, source: Any = None, real: Any = None):
        self.source = source
        self.node = node
        self.fake = fake
        self.real = real

    def describe(self) -> str:
        return "random generator" if self.source is None else f"random generator {self.source.name}"

    def python_type(self) -> type:
        return torch.Generator

    def truth(self, tx: Any) -> bool:
        return True

    def hash_key(self, tx: Any) -> Any:
        from .keys import IdentityKey

        return IdentityKey(self)

    def as_proxy(self) -> Any:
        if self.node is None:
            from .context import current_output

            self.node = current_output().input_node(self)
        return self.node

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "device":
            return tx.wrap(self.fake.device, None)  # type: ignore[no-any-return]
        if name in _METHODS:
            return OwnerMethodVariable(self, name)
        if not hasattr(torch.Generator, name):
            tx.raise_exception(AttributeError, f"'torch._C.Generator' object has no attribute '{name}'")
        raise GraphBreak("random_state", attribute=name)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        method = _METHODS.get(name)
        if method is None:
            raise GraphBreak("random_state", method=name)
        return method(tx, self, *[a.realize() for a in args], **{k: a.realize() for k, a in kwargs.items()})

    def reconstruct(self, codegen: Any) -> None:
        codegen.graph_output(self.as_proxy())


def _seed(vt: VariableTracker) -> Any:
    """A seed as a graph argument."""
    if getattr(vt, "is_symbolic_number", False):
        return vt.as_proxy()
    value = vt.as_python_constant()
    if type(value) is not int or not -(1 << 63) <= value < 1 << 64:
        raise GraphBreak("random_state", seed=value)
    return value


def _manual_seed(tx: Any, generator: GeneratorVariable, seed: VariableTracker) -> VariableTracker:
    make_node(tx, higher_order.seed_generator, (generator.as_proxy(), _seed(seed)), None)
    return generator


def _get_state(tx: Any, generator: GeneratorVariable) -> VariableTracker:
    fake = _state_like(generator.fake)
    node = make_node(tx, higher_order.generator_state, (generator.as_proxy(),), fake)
    return tx.output.wrap_result(node, fake)  # type: ignore[no-any-return]


def _set_state(tx: Any, generator: GeneratorVariable, new_state: VariableTracker) -> VariableTracker:
    if not isinstance(new_state, TensorVariable):
        raise GraphBreak("random_state", value=new_state.describe())
    make_node(tx, higher_order.set_generator_state, (generator.as_proxy(), new_state.as_proxy()), None)
    return tx.const(None)  # type: ignore[no-any-return]


_METHODS = {"manual_seed": _manual_seed, "get_state": _get_state, "set_state": _set_state}


def _make_generator(tx: Any, device: Any = None) -> VariableTracker:
    place = torch.device("cpu" if device is None else device.as_python_constant())
    node = make_node(tx, torch.Generator, (place,), None)
    node.meta["val"] = fake = torch.Generator(place)
    return GeneratorVariable(node, fake)


CONSTRUCTORS[torch.Generator] = _make_generator


@wraps_type(torch.Generator)
def wrap_generator(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is None:
        raise GraphBreak("random_state", value="a generator that the translation made")
    from ..source import AttrSource

    tx.output.guard(source, "TYPE", torch.Generator)
    tx.output.guard(AttrSource(source, "device"), "CONSTANT", value.device)
    return GeneratorVariable(None, torch.Generator(value.device), source, value)


# -- the default generators --------------------------------------------------------------------------------------------


@handles(torch.get_rng_state, torch.random.get_rng_state)
def _get_rng_state(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    fake = _state_like(torch.default_generator)
    node = make_node(tx, higher_order.get_rng_state, (), fake)
    return tx.output.wrap_result(node, fake)  # type: ignore[no-any-return]


@handles(torch.set_rng_state, torch.random.set_rng_state)
def _set_rng_state(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    (state,) = [*args, *kwargs.values()]
    if not isinstance(state, TensorVariable):
        raise GraphBreak("random_state", value=state.describe())
    make_node(tx, higher_order.set_rng_state, (state.as_proxy(),), None)
    return tx.const(None)  # type: ignore[no-any-return]


@handles(torch.manual_seed, torch.random.manual_seed)
def _manual_seed_all(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    (seed,) = [*args, *kwargs.values()]
    node = make_node(tx, higher_order.manual_seed, (_seed(seed),), torch.Generator())
    return GeneratorVariable(node, node.meta["val"])


def _read_now(function: Any) -> Any:
    """What the machine has is the same at each run."""

    def handler(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if all(isinstance(a, ConstantVariable) for a in (*args, *kwargs.values())):
            result = function(*[a.as_python_constant() for a in args], **{k: a.value for k, a in kwargs.items()})
            return tx.wrap(result, None)  # type: ignore[no-any-return]
        return fold(tx, function, args, kwargs)

    return handler


for _function in (
    getattr(getattr(torch, "accelerator", None), "current_accelerator", None),
    getattr(torch, "get_device_module", None),
    torch.cuda.device_count,
):
    if _function is not None:
        handles(_function)(_read_now(_function))
