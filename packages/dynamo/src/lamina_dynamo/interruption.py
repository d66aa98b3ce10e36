"""Exceptions that a signal handler of the program raises while something of this package runs: no fault of whatever
they interrupt. They reach the caller as they are, where an error of capture, of a backend or of a folded call is made
something else of.
"""

from __future__ import annotations

import _signal  # the module that signal wraps in enums, at ten times the price
import types


def pass_on(error: BaseException) -> None:
    """Raises ``error`` if a signal handler raised it."""
    if is_interruption(error):
        raise error


def is_interruption(error: BaseException) -> bool:
    """Did a signal handler of the program raise it, or what the interpreter does for Ctrl-C?"""
    if not isinstance(error, Exception):
        return True
    codes = [code for number in range(1, _signal.NSIG) if (code := _code_of(_signal.getsignal(number)))]
    traceback = error.__traceback__
    while codes and traceback is not None:
        # by identity: code that was made from a frame may hold constants that cannot be compared or hashed
        if any(traceback.tb_frame.f_code is code for code in codes):
            return True
        traceback = traceback.tb_next
    return False


def _code_of(handler: object) -> types.CodeType | None:
    if handler is None or isinstance(handler, int):  # not set by Python; default; ignored
        return None
    if not isinstance(handler, (types.FunctionType, types.MethodType)):
        handler = vars(type(handler)).get("__call__")
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, types.CodeType) else None
