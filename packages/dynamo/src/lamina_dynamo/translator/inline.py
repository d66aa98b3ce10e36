"""Following a call into a Python function: a child translator runs the callee's bytecode."""

from __future__ import annotations

import builtins
from typing import Any

from .. import trace_policy
from ..graph_break import GraphBreak
from ..variables.base import VariableTracker
from .base import ASYNCHRONOUS, GENERATOR, Translator


def make_child(tx: Translator, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> Translator:
    """The translator of one call of ``fn``, not started."""
    from lamina_dynamo.translator.opcodes import Opcodes

    code = fn.get_code()
    if tx.depth >= tx.output.inline_limit:
        raise GraphBreak("recursion", function=code.co_qualname if hasattr(code, "co_qualname") else code.co_name)
    if code.co_flags & ASYNCHRONOUS:
        raise GraphBreak("coroutine", function=code.co_name)
    symbolic_locals = fn.bind(tx, args, kwargs)
    f_globals = fn.get_globals()
    child = Opcodes(
        tx.output,
        tx,
        code,
        symbolic_locals,
        f_globals,
        _builtins_of(f_globals),
        fn.get_closure(tx) if code.co_freevars else (),
        fn,
    )
    return child


def _builtins_of(f_globals: dict[str, Any]) -> dict[str, Any]:
    found = f_globals.get("__builtins__")
    if found is None:
        return vars(builtins)
    return found if isinstance(found, dict) else vars(found)


def inline_call(
    tx: Translator, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Run ``fn`` (a function tracker) in a child translator; a generator function gives its generator."""
    direct, tx.direct_call = tx.direct_call, False
    reason = trace_policy.reason_to_skip(fn)
    if reason is not None:
        if trace_policy.is_advice_to_others(fn, tx.f_globals.get("__name__")):
            return tx.const(None)  # type: ignore[no-any-return]
        original = trace_policy.original_of_advice(fn)
        if original is not None:
            return tx.inline(tx.wrap(original, None), args, kwargs)  # type: ignore[no-any-return]
        raise GraphBreak(*reason[:1], **reason[1])
    child = make_child(tx, fn, args, kwargs)
    if child.is_generator:
        from lamina_dynamo.translator.generator import GeneratorVariable

        if tx.output.decisions.get(("abandoned", child.f_code)):
            raise GraphBreak("generator_escapes", function=child.f_code.co_name, reason="dropped inside a block")
        return GeneratorVariable(child, fn)
    child.is_direct = direct
    return child.run()


def run_class_body(tx: Translator, fn: Any, namespace: VariableTracker) -> VariableTracker:
    """Run a class body, its names going to ``namespace`` (among them ``__classcell__`` where there is one)."""
    tx.direct_call = False
    child = make_child(tx, fn.realize(), [], {})
    child.namespace = namespace
    return child.run()


__all__ = ["GENERATOR", "inline_call", "make_child", "run_class_body"]
