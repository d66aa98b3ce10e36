"""Loggers: what they print is replayed in order."""

from __future__ import annotations

import logging
import types
from typing import Any

from .base import VariableTracker
from .builder import wraps_if
from .user_object import UserObjectVariable

_LOG_METHODS = ("debug", "info", "warning", "error", "critical", "log")


class LoggerVariable(UserObjectVariable):
    """A logger: level questions are answered now, records are emitted after the graph, in order."""

    __slots__ = ()

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        return self.get_attr(tx, name).call_function(tx, args, kwargs)

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name in (*_LOG_METHODS, "isEnabledFor"):
            return LogMethodVariable(self, name)
        return super().get_attr(tx, name)


class LogMethodVariable(VariableTracker):
    """`logger.info` and the like."""

    __slots__ = ("logger", "name")

    def __init__(self, logger: LoggerVariable, name: str):
        super().__init__(None)
        self.logger = logger
        self.name = name

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        real = self.logger.value
        if self.name == "isEnabledFor":
            return tx.const(real.isEnabledFor(args[0].realize().as_python_constant()))
        level = {
            "debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50,
        }.get(self.name)  # fmt: skip
        if level is None:
            level = args[0].realize().as_python_constant()
            args = args[1:]
        if not real.isEnabledFor(level):
            return tx.const(None)
        if kwargs:
            tx.graph_break("print", function=f"logger.{self.name}", reason="keyword arguments")
        texts: list[VariableTracker] = []
        for arg in args:
            arg = arg.realize()
            if not arg.is_python_constant():
                tx.graph_break("print", function=f"logger.{self.name}", reason="argument known only after the graph")
            texts.append(arg)
        tx.output.side_effects.record_call(real.log, [tx.const(level), *texts], {})
        return tx.const(None)

    def children(self) -> Any:
        return (self.logger,)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.logger)
        codegen.load_attr(self.name)


@wraps_if(lambda v: issubclass(type(v), logging.Logger), priority=5)
def wrap_logger(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return LoggerVariable(value, source)
