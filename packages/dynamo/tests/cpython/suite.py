"""Runs CPython's own tests with every test function captured (backend "eager") and compares outcomes with plain Python.

python suite.py test_list test_dict          one line per test that differs, and a count of what was captured how
"""

# ruff: noqa: E501
from __future__ import annotations

import collections
import importlib
import re
import signal
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import lamina_dynamo

#: modules of CPython's test package about the language and its containers
MODULES = (
    "test_list", "test_dict", "test_set", "test_generators", "test_exceptions", "test_contextlib", "test_dataclasses", "test_functools", "test_itertools",
    "test_enum", "test_collections", "test_descr", "test_super", "test_patma", "test_tuple", "test_raise", "test_with", "test_deque", "test_ordered_dict",
    "test_defaultdict", "test_operator", "test_iter", "test_slice", "test_range", "test_property", "test_unpack", "test_unpack_ex", "test_keywordonlyarg",
    "test_positional_only_arg", "test_scope", "test_decorators", "test_dictviews", "test_userdict", "test_userlist", "test_exception_group", "test_except_star",
    "test_listcomps", "test_dictcomps", "test_genexps", "test_extcall", "test_grammar", "test_augassign", "test_compare", "test_bool", "test_fstring",
    "test_funcattrs", "test_metaclass", "test_enumerate", "test_heapq", "test_bisect", "test_isinstance", "test_abc", "test_copy", "test_with", "test_opcodes",
)  # fmt: skip

#: of CPU time, for one test
SECONDS = 40


class _Raises:
    """What assertRaises gives, small enough to be captured with the test."""

    def __init__(self, kinds: Any, pattern: str | None = None):
        self.kinds = kinds
        self.pattern = pattern
        self.exception: BaseException | None = None

    def __enter__(self) -> _Raises:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        if kind is None:
            raise AssertionError("not raised")
        if not issubclass(kind, self.kinds):
            return False
        self.exception = value
        if self.pattern is not None and not re.search(self.pattern, str(value)):
            raise AssertionError(f"{self.pattern!r} not in {str(value)!r}")
        return True


def _assert_raises(kinds: Any, *args: Any, **kwargs: Any) -> Any:
    if not args:
        return _Raises(kinds)
    with _Raises(kinds):
        args[0](*args[1:], **kwargs)


def _assert_raises_regex(kinds: Any, pattern: Any, *args: Any, **kwargs: Any) -> Any:
    pattern = getattr(pattern, "pattern", pattern)
    if not args:
        return _Raises(kinds, pattern)
    with _Raises(kinds, pattern):
        args[0](*args[1:], **kwargs)


def _holds(test: Callable[..., bool]) -> Callable[..., None]:
    def check(*args: Any, msg: Any = None, **kwargs: Any) -> None:
        if not test(*args):
            raise AssertionError(msg)

    return check


#: unittest is not captured; these say the same in code that is
ASSERTIONS: dict[str, Callable[..., Any]] = {
    "assertEqual": _holds(lambda a, b, m=None: a == b),
    "assertNotEqual": _holds(lambda a, b, m=None: a != b),
    "assertListEqual": _holds(lambda a, b, m=None: a == b),
    "assertTupleEqual": _holds(lambda a, b, m=None: a == b),
    "assertDictEqual": _holds(lambda a, b, m=None: a == b),
    "assertSequenceEqual": _holds(lambda a, b, m=None: list(a) == list(b)),
    "assertTrue": _holds(lambda a, m=None: bool(a)),
    "assertFalse": _holds(lambda a, m=None: not a),
    "assertIs": _holds(lambda a, b, m=None: a is b),
    "assertIsNot": _holds(lambda a, b, m=None: a is not b),
    "assertIsNone": _holds(lambda a, m=None: a is None),
    "assertIsNotNone": _holds(lambda a, m=None: a is not None),
    "assertIn": _holds(lambda a, b, m=None: a in b),
    "assertNotIn": _holds(lambda a, b, m=None: a not in b),
    "assertIsInstance": _holds(lambda a, b, m=None: isinstance(a, b)),
    "assertNotIsInstance": _holds(lambda a, b, m=None: not isinstance(a, b)),
    "assertLess": _holds(lambda a, b, m=None: a < b),
    "assertLessEqual": _holds(lambda a, b, m=None: a <= b),
    "assertGreater": _holds(lambda a, b, m=None: a > b),
    "assertGreaterEqual": _holds(lambda a, b, m=None: a >= b),
    "assertRaises": _assert_raises,
    "assertRaisesRegex": _assert_raises_regex,
}


class TooLong(BaseException):
    """A test ran over its time."""


def warm_up() -> None:
    """Loads what capture loads on demand: an alarm in the middle of an import would leave half a module."""

    def half(x: Any, n: int) -> Any:
        return x[: x.shape[0] // 2] + n

    for n in (3, 4, 5):
        lamina_dynamo.optimize("eager", dynamic=True)(half)(torch.ones(2 * n), n)


def _alarm(*args: Any) -> None:
    raise TooLong


def tests_of(module_name: str) -> Iterator[tuple[type, str]]:
    """(TestCase class, method name) of the tests that a module defines."""
    module = importlib.import_module(f"test.{module_name}")
    for cls in list(vars(module).values()):
        if isinstance(cls, type) and issubclass(cls, unittest.TestCase) and cls.__module__.startswith("test."):
            for name in unittest.defaultTestLoader.getTestCaseNames(cls):
                yield cls, name


def run_one(cls: type, name: str, capture: bool) -> tuple[str, str, list[str]]:
    """(outcome, text, kinds of graph breaks): outcome is passed, failed, error, skipped or timeout."""
    case = cls(name)
    breaks: list[str] = []
    remove = None
    if capture:
        lamina_dynamo.reset()
        method = getattr(case, name)
        fn = getattr(method, "__func__", None)
        if (
            isinstance(fn, types.FunctionType)
            and not hasattr(fn, "__wrapped__")
            and not getattr(fn, "__unittest_skip__", False)
        ):
            for assertion, check in ASSERTIONS.items():
                if getattr(cls, assertion, None) is getattr(unittest.TestCase, assertion):
                    setattr(case, assertion, check)
            setattr(case, name, types.MethodType(lamina_dynamo.optimize("eager")(fn), case))
        remove = lamina_dynamo.on_event(
            lambda e: breaks.append(f"{e.payload['kind']}: {e.payload['message']}") if e.name == "graph break" else None
        )
    result = unittest.TestResult()
    old = signal.signal(signal.SIGALRM, _alarm), signal.signal(signal.SIGPROF, _alarm)
    signal.alarm(10 * SECONDS)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.run(result)
    except TooLong:
        return "timeout", "", breaks
    except lamina_dynamo.DynamoError as e:
        return "error", f"{type(e).__name__}: {e}", breaks
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGALRM, old[0])
        signal.signal(signal.SIGPROF, old[1])
        if remove is not None:
            remove()
    if result.errors:
        return "error", result.errors[0][1], breaks
    if result.failures:
        return "failed", result.failures[0][1], breaks
    if result.skipped:
        return "skipped", "", breaks
    return "passed", "", breaks


def compare(cls: type, name: str) -> str | None:
    """None if captured and plain agree, else what happened."""
    plain, _, _ = run_one(cls, name, False)
    if plain in ("skipped", "timeout"):
        return None
    captured, text, _ = run_one(cls, name, True)
    if captured == plain:
        return None
    return f"{cls.__name__}.{name}: plain {plain}, captured {captured}: {text.strip()[-900:]}"


def main(names: list[str]) -> int:
    verbose = "-v" in names
    names = [n for n in names if not n.startswith("-")]
    warm_up()
    wrong, kinds, total, whole = 0, collections.Counter(), 0, 0
    for module_name in [n for n in names if "." not in n] or MODULES:
        classes: dict[type, bool] = {}
        for cls, name in tests_of(module_name):
            if cls not in classes:
                try:
                    cls.setUpClass()
                    classes[cls] = True
                except Exception:
                    classes[cls] = False
            if not classes[cls]:
                continue
            plain, _, _ = run_one(cls, name, False)
            if plain in ("skipped", "timeout"):
                continue
            total += 1
            captured, text, breaks = run_one(cls, name, True)
            if captured != plain:
                wrong += 1
                print(
                    f"WRONG {module_name} {cls.__name__}.{name}: {plain} -> {captured}\n    "
                    + "\n    ".join(text.strip().splitlines()[-6:]),
                    flush=True,
                )
            if breaks:
                kinds.update(b.split(":")[0] for b in breaks)
                if plain == "passed" and any(b.startswith("exception_escapes") for b in breaks):
                    print(
                        f"ESCAPE {module_name} {cls.__name__}.{name}: {[b for b in breaks if b.startswith('exception_escapes')][0][:300]}",
                        flush=True,
                    )
                if verbose:
                    print(f"BREAK {cls.__name__}.{name}: {breaks[0][:300]}", flush=True)
            else:
                whole += 1
        print(f"{module_name}: total so far {total}, wrong {wrong}, whole {whole}", flush=True)
    print(kinds.most_common(30))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
