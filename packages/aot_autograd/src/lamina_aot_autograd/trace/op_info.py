"""What the tracer must know of an operator, worked out once from its schema."""

from __future__ import annotations

from typing import Any

import torch

from .. import config
from .rules import OWN_RULES

PURE, VIEW, INPLACE, OUT, MUTATE, COMPOSITE, VALUE = range(7)


# Elementwise all the same, but their out= must have the dtype of the result.
_KEEPS_DTYPE = {"aten::complex", "aten::polar"}


class OpInfo:
    """func, its kind, its shape rule or None, the node-name base, and for mutating ops the functional counterpart.

    mutated: for OUT and MUTATE the names of written arguments. is_random: draws from a generator. fill: defaults by
    position, where the functional counterpart has none (the dispatcher drops arguments that equal their default).
    converts_out: whether its out= form takes a tensor of another dtype and converts the result.
    """

    __slots__ = ("func", "kind", "rule", "base", "functional", "mutated", "is_random", "fill", "converts_out")

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func = func
        self.base = schema.name.split("::")[-1].lstrip("_") or "op"
        if not self.base.isidentifier():
            self.base = "op_" + "".join(c if c.isalnum() else "_" for c in self.base)
        self.rule: Any = None
        # backwards of attention carry the tag of their forwards, but take the forward's random state as an argument
        self.is_random = (
            torch.Tag.nondeterministic_seeded in func.tags and not func._schema.name.endswith("_backward")
        )
        self.converts_out = torch.Tag.pointwise in func.tags and schema.name not in _KEEPS_DTYPE
        self.functional = None
        self.mutated: tuple = ()
        self.fill: tuple = ()
        written = [(i, arg) for i, arg in enumerate(schema.arguments) if arg.alias_info and arg.alias_info.is_write]
        if written:
            self._analyse_mutation(schema, written)
        elif _is_composite(func):
            self.kind = COMPOSITE
        elif any(ret.alias_info is not None for ret in schema.returns):
            self.kind = VIEW
        else:
            self.kind = PURE
            self.rule = find_rule(func)

    def _analyse_mutation(self, schema: Any, written: list) -> None:
        name = schema.name
        if all(arg.is_out for _, arg in written):
            self.kind = OUT
            self.mutated = tuple(arg.name for _, arg in written)
            self.functional = _find_functional_of_out(self.func)
        elif len(written) == 1 and written[0][0] == 0 and name.endswith("_"):
            self.kind = INPLACE
            self.functional = _find_functional_of_inplace(self.func)
            if self.functional is not None:
                self.fill = _missing_defaults(schema, self.functional._schema)
        else:
            self.kind = MUTATE
            self.mutated = tuple(arg.name for _, arg in written)


def _missing_defaults(mine: Any, theirs: Any) -> tuple:
    """Defaults of `mine` by position, when `theirs` wants some of those arguments; else nothing."""
    ours = [arg for arg in mine.arguments if not arg.kwarg_only]
    wanted = [arg for arg in theirs.arguments if not arg.kwarg_only]
    if any(a.has_default_value() and not b.has_default_value() for a, b in zip(ours, wanted, strict=False)):
        return tuple(a.default_value if a.has_default_value() else None for a in ours)
    return ()


def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


_installed: dict | None = None


def installed_rules() -> dict:
    """Shape rules that other packages offer through the entry point group `lamina.shape_rules`."""
    global _installed
    if _installed is None:
        from importlib.metadata import entry_points

        _installed = {}
        for entry in entry_points(group="lamina.shape_rules"):
            try:
                _installed.update(entry.load())
            except Exception as error:  # a broken third package must not stop tracing; the fallback is always right
                from ..observe import report

                report("fallback", f"shape rules of {entry.value} could not be loaded: {error!r}")
    return _installed


def find_rule(func: Any) -> Any:
    """The shape rule for an operator: an installed one (these know more cases), else this package's, else None."""
    settings = config.get()
    rule = installed_rules().get(func) if settings.installed_rules else None
    if rule is None and settings.own_rules:
        rule = OWN_RULES.get(func)
    return rule


_SPECIAL_FUNCTIONAL = {
    "aten::bernoulli_": {"float": ("bernoulli", "p"), "Tensor": ("bernoulli", "Tensor")},
    "aten::normal_": {"default": ("normal_functional", "default")},
    "aten::fill_": {"Scalar": ("fill", "Scalar"), "Tensor": ("fill", "Tensor")},
}


def _find_functional_of_inplace(func: Any) -> Any:
    namespace, _, full = func._schema.name.partition("::")
    overload = func._schema.overload_name or "default"
    packets = getattr(torch.ops, namespace)
    special = _SPECIAL_FUNCTIONAL.get(func._schema.name, {}).get(overload)
    name, wanted = special or (full[:-1], overload)
    packet = getattr(packets, name, None)
    if packet is None:
        return None
    mine = _argument_types(func)
    names = packet.overloads()
    for candidate in ([wanted] if wanted in names else []) + [n for n in names if n != wanted]:
        found = getattr(packet, candidate)
        if not found._schema.is_mutable and _argument_types(found)[: len(mine)] == mine:
            return found
    return None


def _argument_types(func: Any) -> list[str]:
    """Types of the arguments; numbers of sizes count as ints."""
    return [str(arg.type).replace("SymInt", "int") for arg in func._schema.arguments if not arg.is_out]


def _find_functional_of_out(func: Any) -> Any:
    namespace, _, full = func._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), full)
    mine = [(arg.name, str(arg.type)) for arg in func._schema.arguments if not arg.is_out]
    longer = None
    for overload in packet.overloads():
        other = getattr(packet, overload)
        if other._schema.is_mutable:
            continue
        theirs = [(arg.name, str(arg.type)) for arg in other._schema.arguments]
        if theirs == mine:
            return other
        rest = other._schema.arguments[len(mine) :]
        if theirs[: len(mine)] == mine and all(arg.has_default_value() for arg in rest):
            longer = longer or other
    return longer


_table: dict[Any, OpInfo] = {}


def lookup(func: Any) -> OpInfo:
    """The OpInfo of an overload (made on first use)."""
    info = _table.get(func)
    if info is None:
        info = _table[func] = OpInfo(func)
    return info
