"""The frame evaluation hook by itself, without torch: ``python tests/native_check.py`` on any supported CPython after
``hatch_build.py``; another folder that has the extension may be named as argument.

The stand-in compiler turns the constant 42 into 1042.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
import sysconfig
import threading
import weakref

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "lamina_dynamo")


def load():
    folder = sys.argv[1] if len(sys.argv) > 1 else SOURCE
    path = os.path.join(folder, "_eval_frame" + sysconfig.get_config_var("EXT_SUFFIX"))
    spec = importlib.util.spec_from_file_location("_eval_frame", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


native = load()
KEY = object()


def compile_frame(owner, code, f_locals, f_globals, f_builtins, closure, misses):
    if code.co_name.startswith("keep"):
        native.mark_code(code, native.MARK_SKIP)
        return None
    if code.co_name == "boom":
        raise KeyError("boom")
    consts = tuple(1042 if type(c) is int and c == 42 else c for c in code.co_consts)
    # "big": more stack than the original frame has, so that the frame must grow or be replaced by a call.
    stack = code.co_stacksize + (50_000 if "big" in code.co_name else 3)
    new = code.replace(co_consts=consts, co_stacksize=stack)
    return native.Entry(KEY, code, new, native.GuardProgram([], [], [], 0), None, False)


OWNER = native.Owner(KEY, compile_frame)


def compiled(fn):
    return native.Wrapper(fn, OWNER)


def test_arguments():
    def f(a, b=2, *args, c=3, **kw):
        x = 42

        def inner():
            return x + a

        return inner(), b, args, c, sorted(kw)

    assert compiled(f)(1) == (1043, 2, (), 3, [])
    assert compiled(f)(1, 5, 6, 7, c=9, z=1) == (1043, 5, (6, 7), 9, ["z"])
    assert f(1) == (43, 2, (), 3, []) and not native.is_installed()


def test_cells():
    y = 42

    def closure(n):
        nonlocal y
        y += 1
        return y + n + 42

    g = compiled(closure)
    assert g(1) == 43 + 1 + 1042 and g(1) == 44 + 1 + 1042 and closure(1) == 45 + 43

    def argument(a, b):
        def h():
            return a

        a = a + 1
        return h() + b + 42

    assert compiled(argument)(1, 2) == 2 + 2 + 1042


def test_frames_that_do_not_fit():
    def big(a, *rest, k):
        try:
            raise ValueError([a, rest, k, 42])
        except ValueError as e:
            return e.args[0]

    g = compiled(big)
    for _ in range(3):
        assert g(1, 5, k=2) == [1, (5,), 2, 1042]

    def bigerror(a):
        return a / 0 + 42

    try:
        compiled(bigerror)(1)
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("no exception")
    assert not native.is_installed() and native.current_owner() is None


def test_exceptions():
    def boom():
        return 1

    for _ in range(3):
        try:
            compiled(boom)()
        except KeyError:
            continue
        raise AssertionError("no exception")


def test_recursion():
    def f(n):
        return 42 if n == 0 else f(n - 1) + 1

    def runaway(n):
        return runaway(n + 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4000)
    try:
        assert compiled(f)(3000) == 4042
        try:
            compiled(runaway)(0)
        except RecursionError:
            pass
    finally:
        sys.setrecursionlimit(limit)


def test_generators():
    def gen(n):
        for i in range(n):
            yield i + 42

    def use(n):
        return list(gen(n)), [k + 42 for k in range(2)]

    assert compiled(use)(2) == ([42, 43], [1042, 1043])
    outside = gen(3)
    next(outside)
    assert compiled(lambda it: next(it) + 42)(outside) == 43 + 1042


def test_threads():
    def f(k):
        return sum(i for i in range(100)) + k + 42

    g, results = compiled(f), []
    threads = [
        threading.Thread(target=lambda: results.extend(g(i) == 4950 + i + 1042 for i in range(500))) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 2000 and all(results) and not native.is_installed()


def test_tracing():
    lines = []

    def traced(a):
        b = a + 42
        return b

    def tracer(frame, event, arg):
        if frame.f_code.co_name == "traced" and event == "line":
            lines.append(frame.f_lineno - traced.__code__.co_firstlineno)
        return tracer

    g = compiled(traced)
    sys.settrace(tracer)
    try:
        assert g(1) == 43  # the frame itself: who traces is to see its own lines
    finally:
        sys.settrace(None)
    assert lines == [1, 2] and g(1) == 1043
    if sys.version_info >= (3, 12):
        monitoring, seen = sys.monitoring, []
        monitoring.use_tool_id(3, "check")
        monitoring.register_callback(
            3, monitoring.events.LINE, lambda c, n: seen.append(n) if c.co_name == "traced" else None
        )
        monitoring.set_events(3, monitoring.events.LINE)
        assert g(1) == 43
        monitoring.set_events(3, 0)
        monitoring.free_tool_id(3)
        assert [n - traced.__code__.co_firstlineno for n in seen] == [1, 2]


def test_lifetimes():
    def one():
        def f(a):
            return a + 42

        owner = native.Owner(KEY, compile_frame)
        assert native.Wrapper(f, owner)(1) == 1043
        return weakref.ref(owner), f.__code__

    for _ in range(200):
        owner, code = one()
        assert owner() is None
    assert native.code_entries(code) == []
    gc.collect()


def test_fork():
    pid = os.fork()
    if pid == 0:
        native.after_fork()
        os._exit(0 if compiled(lambda: 42)() == 1042 else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_values_given_by_the_guards():
    """What the guard program has in its registers is found in the first local behind the arguments."""

    def new(x, *rest, k):
        if 0:
            given = None
        first = given[0] * 2
        del given
        return first, x, rest, k

    def compile_given(owner, code, f_locals, f_globals, f_builtins, closure, misses):
        local = native.ACCESSES["LOCAL"]
        nodes = [(local, -1, None, None, 1, 0, 0), (local, -1, None, None, 0, 1, 0)]  # k, then x
        program = native.GuardProgram(nodes, [], [], 2, (1, 0))
        stack = new.__code__.co_stacksize + (50_000 if "big" in code.co_name else 3)
        assert new.__code__.co_varnames[:4] == ("x", "k", "rest", "given")
        return native.Entry(KEY, code, new.__code__.replace(co_stacksize=stack), program, None, False)

    owner = native.Owner(KEY, compile_given)

    def small(x, *rest, k):
        return x

    def big(x, *rest, k):
        return x

    for f in (small, big):
        for turn in range(3):  # made now, then found
            value = [turn]
            before = sys.getrefcount(value)
            assert native.Wrapper(f, owner)(value, 1, k=5) == ([turn, turn], value, (1,), 5)
            assert sys.getrefcount(value) == before


def main():
    for name, check in list(globals().items()):
        if name.startswith("test_"):
            check()
    print("ok", sys.version.split()[0])


if __name__ == "__main__":
    main()
