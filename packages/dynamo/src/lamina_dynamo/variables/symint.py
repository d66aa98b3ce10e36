"""Numbers that are not known during translation: symbolic sizes, ints and floats."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from ..graph_break import GraphBreak
from .base import VariableTracker
from .constant import ConstantVariable

_GROWING = {operator.mul, operator.lshift, operator.pow, operator.imul, operator.ilshift, operator.ipow}
_LARGE_FACTOR = 1 << 31
_LARGE_SHIFT = 16
_LARGE_EXPONENT = 3


class SymNumberVariable(VariableTracker):
    """A symbolic int, float or bool; ``value`` is torch's SymInt / SymFloat / SymBool, ``node`` gives it in the graph.

    Asking for its truth, or using it where a plain number is needed, guards on the answer (the shape environment
    keeps it).
    """

    __slots__ = ("node", "fake", "real")
    has_identity = False
    is_symbolic_number = True

    def __init__(self, node: Any, value: Any, source: Any = None, real: Any = None):
        self.source = source
        self.node = node
        self.fake = value
        self.real = real

    @property
    def value(self) -> Any:
        return self.fake

    def describe(self) -> str:
        return f"symbolic number {self.fake}"

    def python_type(self) -> type:
        if isinstance(self.fake, torch.SymInt):
            return int
        return float if isinstance(self.fake, torch.SymFloat) else bool

    def as_proxy(self) -> Any:
        if self.node is None:
            from .context import current_output

            self.node = current_output().input_node(self)
        return self.node

    def known(self, kind: type) -> Any:
        """The present value, under a guard; breaks if only the run knows it."""
        try:
            return kind(self.fake)
        except Exception as e:
            if type(e).__name__ != "GuardOnDataDependentSymNode":
                raise
            raise GraphBreak(
                "data_dependent_branch" if kind is bool else "data_dependent_scalar", value=str(self.fake)
            ) from None

    def as_index(self, tx: Any) -> int:
        return self.known(int)

    def convert_number(self, tx: Any, kind: type) -> VariableTracker:
        """``int(number)``, ``float(number)``, ``bool(number)``."""
        own = self.python_type()
        if kind is own:
            return self
        if own is bool or kind is bool:
            return tx.const(kind(self.known(bool)))
        convert = torch.sym_float if kind is float else torch.sym_int
        return _result(tx, tx.output.create_call("call_function", convert, [self]))

    def specialize(self, tx: Any) -> VariableTracker:
        """The number as a constant, under a guard."""
        return tx.const(self.known(self.python_type()))

    def truth(self, tx: Any) -> bool | None:
        return self.known(bool)

    def hash_key(self, tx: Any) -> Any:
        return self.specialize(tx).hash_key(tx)

    def binary_op(self, tx: Any, op: Callable[..., Any], other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if not (
            isinstance(other, SymNumberVariable)
            or (isinstance(other, ConstantVariable) and type(other.value) in (int, float, bool))
        ):
            return NotImplemented
        if self.may_leave_machine_words(op, other, reflected):
            return self.specialize(tx).binary_op(tx, op, other, reflected)
        pair = [other, self] if reflected else [self, other]
        result = _result(tx, tx.output.create_call("call_function", op, pair), pair)
        if (
            isinstance(result, SymNumberVariable)
            and isinstance(result.fake, torch.SymInt)
            and result.fake.node.has_hint()  # those that only the run knows are bound by nothing
            and not tx.output.symbols.keep_in_words(result.fake.node.expr, result.fake.node.hint)
        ):
            return self.specialize(tx).binary_op(tx, op, other, reflected)
        return result

    def may_leave_machine_words(self, op: Callable[..., Any], other: VariableTracker, reflected: bool) -> bool:
        """Python's ints have no bounds, those of graphs and guards have 64 bits."""
        if self.python_type() is not int or op not in _GROWING:
            return False
        if isinstance(other, SymNumberVariable):
            return op is not operator.mul
        if type(other.value) is not int:  # type: ignore[attr-defined]
            return False
        if op is operator.mul:
            return abs(other.value) >= _LARGE_FACTOR  # type: ignore[attr-defined]
        return reflected or not 0 <= other.value <= (_LARGE_SHIFT if op is operator.lshift else _LARGE_EXPONENT)  # type: ignore[attr-defined]

    def pick_extreme(self, tx: Any, name: str, a: VariableTracker, b: VariableTracker) -> VariableTracker | None:
        """``min(a, b)`` or ``max(a, b)`` of ints of which only the run knows one; None: comparing them decides."""
        if not (_is_int(a) and _is_int(b)) or not (_only_run_knows(a) or _only_run_knows(b)):
            return None
        pick = torch.sym_min if name == "min" else torch.sym_max
        return _result(tx, tx.output.create_call("call_function", pick, [a, b]))

    def unary_op(self, tx: Any, op: Callable[..., Any]) -> VariableTracker:
        if op is operator.pos:
            return self
        if op is operator.not_:
            return tx.const(not self.known(bool))
        return _result(tx, tx.output.create_call("call_function", op, [self]))

    def call_builtin_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        return self.specialize(tx).call_builtin_method(tx, name, args, kwargs)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        return self.specialize(tx).get_attr(tx, name)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        return self.specialize(tx).call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Any) -> None:
        codegen.graph_output(self.as_proxy())


def _is_int(vt: VariableTracker) -> bool:
    return isinstance(vt, (SymNumberVariable, ConstantVariable)) and vt.python_type() is int


def _only_run_knows(vt: VariableTracker) -> bool:
    return isinstance(vt, SymNumberVariable) and not vt.fake.node.has_hint()


def _result(tx: Any, vt: VariableTracker, operands: Any = ()) -> VariableTracker:
    if isinstance(vt, SymNumberVariable):
        expr = vt.fake.node.expr
        if isinstance(vt.fake, torch.SymBool) or expr.is_number:
            for operand in operands:
                if isinstance(operand, SymNumberVariable) and isinstance(operand.fake, torch.SymFloat):
                    tx.output.symbols.assume_finite(operand.fake)
        if isinstance(vt.fake, torch.SymBool):
            if not expr.free_symbols:
                return tx.const(bool(vt.fake))
        elif expr.is_number and (isinstance(vt.fake, torch.SymInt) or vt.fake.node.has_hint()):
            return tx.const(int(expr) if isinstance(vt.fake, torch.SymInt) else float(vt.fake.node.hint))
    return vt


class SizeNumberVariable(SymNumberVariable):
    """A symbolic size of a tensor; its node (``tensor.size(dim)``) is made when the number is used."""

    __slots__ = ("owner", "dim")

    def __init__(self, value: Any, owner: VariableTracker, dim: int):
        super().__init__(None, value)
        self.owner = owner
        self.dim = dim

    def as_proxy(self) -> Any:
        from .context import current_output

        output = current_output()
        if self.node is None or self.node.graph is not output.graph:
            node = output.graph.create_node("call_method", "size", (self.owner.as_proxy(), self.dim), {})
            node.meta["val"] = self.fake
            node.meta["stack_trace"] = output.current_tx.stack_trace()
            self.node = node
        return self.node

    def children(self) -> Any:
        return (self.owner,)
