"""Dispatch: what is captured, what is not, lifetimes, threads, forks, signals. Translation is real where a graph
matters and a stand-in elsewhere.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import weakref

import pytest
import torch

import lamina_dynamo
from lamina_dynamo import _eval_frame, cache, convert_frame
from lamina_dynamo.guards import Guard
from lamina_dynamo.roots import LocalSource
from lamina_dynamo.translator import TranslationResult


@pytest.fixture(autouse=True)
def fresh():
    lamina_dynamo.reset()
    yield
    assert not _eval_frame.is_installed()


def stand_in(translate):
    """A decorator like optimize() whose translation is the given function."""
    compiler = convert_frame.Compiler(lambda gm, inputs: gm, False, None, translate)

    def wrap(fn):
        return lamina_dynamo.eval_frame.CompiledFunction(fn, cache.owner_for(cache.anchor_of(fn), compiler, compiler))

    return wrap


def answer_1042(code, f_locals, *rest, **options):
    """42 becomes 1042; guarded on the types of the arguments."""
    consts = tuple(1042 if type(c) is int and c == 42 else c for c in code.co_consts)
    guards = [Guard(LocalSource(n), "TYPE", type(v)) for n, v in f_locals.items() if n in code.co_varnames]
    return TranslationResult(code.co_consts and code.replace(co_consts=consts), guards, has_breaks=True)


def test_backends_are_compared_by_identity():
    calls = []

    def one(gm, inputs):
        calls.append(1)
        return gm.forward

    def two(gm, inputs):
        calls.append(2)
        return gm.forward

    def f(x):
        return x + 1

    x = torch.ones(2)
    a, b = lamina_dynamo.optimize(one)(f), lamina_dynamo.optimize(two)(f)
    a(x), b(x), a(x), b(x), lamina_dynamo.optimize(one)(f)(x)
    assert calls == [1, 2]


def test_hook_is_installed_only_while_a_compiled_function_runs():
    seen = []

    def f(x):
        seen.append(_eval_frame.is_installed())
        return 42

    g = stand_in(answer_1042)(f)
    assert not _eval_frame.is_installed()
    assert g(1) == 1042 and seen == [True] and f(1) == 42
    with pytest.raises(TypeError):
        g()
    assert not _eval_frame.is_installed()


def test_arguments_of_all_kinds_reach_the_replaced_code():
    def f(a, /, b=2, *args, c, d=4, **kw):
        cell = 42

        def inner():
            return cell + a

        return inner(), b, args, c, d, kw

    g = stand_in(answer_1042)(f)
    assert g(1, c=3) == (1043, 2, (), 3, 4, {})
    assert g(1, 5, 6, 7, c=3, d=8, z=9) == (1043, 5, (6, 7), 3, 8, {"z": 9})


def test_exceptions_keep_their_traceback():
    def f(a):
        return 42 / a

    g = stand_in(answer_1042)(f)
    with pytest.raises(ZeroDivisionError) as info:
        g(0)
    assert info.traceback[-1].name == "f" and info.traceback[-1].lineno + 1 == f.__code__.co_firstlineno + 1
    assert g(1) == 1042


def test_deep_recursion():
    def f(n):
        return 42 if n == 0 else f(n - 1) + 1

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4000)
    try:
        assert stand_in(answer_1042)(f)(2500) == 3542
    finally:
        sys.setrecursionlimit(limit)


def test_generators_run_as_they_are():
    def gen(n):
        for i in range(n):
            yield i + 42

    def f(n):
        return list(gen(n)), 42

    assert stand_in(answer_1042)(f)(2) == ([42, 43], 1042)


def test_bound_methods_and_decorated_methods():
    class Thing:
        @stand_in(answer_1042)
        def value(self, k):
            return 42 + k

        def other(self):
            return 42

    thing = Thing()
    assert thing.value(1) == 1043
    assert Thing.value(thing, 2) == 1044
    assert stand_in(answer_1042)(thing.other)() == 1042


def test_disable_and_its_shallow_form():
    def inner(x):
        return x + 42

    def f(x):
        return inner(x)

    g = stand_in(answer_1042)
    assert g(f)(1) == 1043
    assert g(lambda x: lamina_dynamo.disable(inner)(x))(1) == 43
    with lamina_dynamo.disable():
        assert g(f)(1) == 1043  # a compiled function called in the block is still compiled

    def outer(x):
        return inner(x), 42

    assert lamina_dynamo.disable(recursive=False)(outer) is outer
    assert g(outer)(1) == (1043, 42)


def test_context_manager_captures_what_is_called():
    def f(x):
        return x * 2

    x = torch.ones(2)
    with lamina_dynamo.optimize("eager"):
        assert torch.equal(f(x), x * 2)
    assert lamina_dynamo.counters()["graphs"] == 1


def test_run_compiles_nothing_new():
    def f(x):
        return x * 2

    g = lamina_dynamo.optimize("eager")(f)
    g(torch.ones(2))
    before = lamina_dynamo.counters()
    r = lamina_dynamo.run(g)
    assert torch.equal(r(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(r(torch.ones(3, 3)), torch.full((3, 3), 2.0))
    after = lamina_dynamo.counters()
    assert after["graphs"] == before["graphs"] == 1 and after["cache_hits"] == before["cache_hits"] + 1
    with lamina_dynamo.run():
        g(torch.ones(4, dtype=torch.int32))
    assert lamina_dynamo.counters()["graphs"] == 1


def test_internal_error_falls_back_once_and_strict_raises(monkeypatch):
    def broken(code, *rest, **options):
        raise AssertionError("a bug")

    def f(x):
        return x + 1

    monkeypatch.setattr(convert_frame.config, "_default", lamina_dynamo.Config(strict=False))
    g = stand_in(broken)(f)
    with pytest.warns(convert_frame.InternalWarning, match=r"f \(.*test_eval_frame.py:\d+\).*a bug"):
        assert g(1) == 2
    assert g(1) == 2
    with lamina_dynamo.patch(strict=True), pytest.raises(lamina_dynamo.InternalError) as info:
        stand_in(broken)(lambda x: x)(1)
    assert isinstance(info.value.__cause__, AssertionError)


def test_backend_failure_reaches_the_caller():
    def bad_backend(gm, inputs):
        raise ValueError("no such device")

    with pytest.raises(lamina_dynamo.BackendCompilerFailed, match="bad_backend") as info:
        lamina_dynamo.optimize(bad_backend)(lambda x: x + 1)(torch.ones(2))
    assert isinstance(info.value.__cause__, ValueError) and info.value.backend == "bad_backend"


def test_keyboard_interrupt_in_the_middle_of_a_translation():
    state = {"n": 0}

    def translate(code, *rest, **options):
        state["n"] += 1
        if state["n"] == 1:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(10**7):
                pass
        return answer_1042(code, *rest, **options)

    def f(x):
        return 42

    g = stand_in(translate)(f)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process started in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            g(1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not _eval_frame.is_installed() and _eval_frame.current_owner() is None and gc.isenabled()
    assert g(1) == 1042


def test_compiled_functions_are_freed():
    code = None
    owners = []

    def compile_and_drop(i):
        nonlocal code

        def f(x):
            return x + i % 7

        g = lamina_dynamo.optimize("eager")(f)
        assert float(g(torch.zeros(()))) == i % 7
        code = f.__code__
        owners.append(weakref.ref(g.owner))

    for i in range(30):
        compile_and_drop(i)
    gc.collect()
    before = len(gc.get_objects())
    for i in range(1000):
        compile_and_drop(i)
    gc.collect()
    assert not any(o() for o in owners)
    assert _eval_frame.code_entries(code) == []
    del owners[:]
    assert len(gc.get_objects()) - before < 500


@pytest.mark.parametrize(
    "body",
    (
        "return x + n",
        "y = [x + n]\n    def inner(): return y[0] * 2\n    return inner()",
        "y = x * n\n    graph_break()\n    return y + other(x)",
        "y = x * n\n    z = [y]\n    z.append(broken(z[0]))\n    return z[1]",
    ),
)
def test_functions_are_freed_that_their_own_globals_hold(body):
    freed = []
    text = f"""
from lamina_dynamo import graph_break
def other(x): return x * 2
def broken(x):
    graph_break()
    return x + 1
def fn(x, n=3):
    {body}
"""
    for _ in range(3):
        namespace = {"__name__": "made"}
        exec(text, namespace)
        compiled = lamina_dynamo.optimize("eager")(namespace["fn"])
        assert torch.equal(compiled(torch.ones(2)), namespace["fn"](torch.ones(2)))
        freed.append(weakref.ref(namespace["fn"]))
        del namespace, compiled
    gc.collect()
    assert not any(ref() for ref in freed)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
def test_an_exception_of_a_signal_handler_reaches_the_caller():
    class Alarm(Exception):
        pass

    def on_alarm(number, frame):
        raise Alarm

    def make():
        def f(x):
            for i in range(30):
                x = x + i
            return x

        return f

    caught = 0
    x = torch.ones(3)
    old = signal.signal(signal.SIGALRM, on_alarm)
    try:
        for i in range(60):
            f = make()
            compiled = lamina_dynamo.optimize("eager")(f)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0001 * i)
                compiled(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                caught += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert torch.equal(compiled(x), f(x))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert caught
    assert not _eval_frame.is_installed() and _eval_frame.current_owner() is None


def test_a_long_loop_without_operators_is_left_whole():
    def table(n):
        found = {}
        for i in range(n):
            found[i] = i
        return len(found)

    def fn(x, n):
        return x + table(n)

    lamina_dynamo.reset()
    assert torch.equal(lamina_dynamo.optimize("eager")(fn)(torch.zeros(2), 20_000), torch.full((2,), 20_000.0))
    assert lamina_dynamo.counters()["breaks"].get("long_loop")
    with pytest.raises(lamina_dynamo.GraphBreakError, match="too many instructions"):
        lamina_dynamo.optimize("eager", fullgraph=True)(fn)(torch.zeros(2), 20_001)


def test_threads_compile_and_call_the_same_function():
    translated = []

    def translate(code, *rest, **options):
        translated.append(threading.get_ident())
        return answer_1042(code, *rest, **options)

    def f(x):
        return x + 42

    g = stand_in(translate)(f)
    results = []
    start = threading.Barrier(6)

    def work():
        start.wait()
        results.extend(g(i) for i in range(300))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == sorted([i + 1042 for i in range(300)] * 6)
    assert len(translated) == 1


def test_other_threads_are_left_alone():
    entered, leave, seen = threading.Event(), threading.Event(), []

    def blocker():
        entered.set()
        leave.wait()
        return 42

    def plain():
        return 42

    g = stand_in(answer_1042)(blocker)
    t = threading.Thread(target=lambda: seen.append(g()))
    t.start()
    entered.wait()
    assert _eval_frame.is_installed() and plain() == 42
    leave.set()
    t.join()
    assert seen == [1042]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_in_and_after_a_compiled_call():
    def f(x):
        pid = os.fork()
        return pid, 42 + x

    pid, value = stand_in(answer_1042)(f)(1)
    if pid == 0:
        os._exit(
            0 if value == 1043 and stand_in(answer_1042)(lambda: 42)() == 1042 and not _eval_frame.is_installed() else 1
        )
    assert value == 1043 and os.waitpid(pid, 0)[1] == 0


def test_settrace_sees_the_lines_of_the_original():
    lines = []

    def f(a):
        b = a + 42
        return b

    def tracer(frame, event, arg):
        if frame.f_code.co_name == "f" and event == "line":
            lines.append(frame.f_lineno - f.__code__.co_firstlineno)
        return tracer

    g = stand_in(answer_1042)(f)
    g(1)
    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        assert g(1) == 43  # the frame itself, each of its lines once
    finally:
        sys.settrace(old)
    assert lines == [1, 2]
    assert g(1) == 1043


def test_who_watches_the_program_sees_its_own_lines():
    def helper(x):
        y = x + 1
        return y * 2

    def f(x):
        a = helper(x)
        for k in range(2):
            a = a * k + 1
        return a

    def watched(call):
        lines = []

        def tracer(frame, event, arg):
            if frame.f_code.co_filename == __file__ and frame.f_code.co_name in ("f", "helper"):
                lines.append((frame.f_code.co_name, event, frame.f_lineno))
            return tracer

        old = sys.gettrace()
        sys.settrace(tracer)
        try:
            call(torch.ones(2))
        finally:
            sys.settrace(old)
        return lines

    lamina_dynamo.reset()
    for compiled in (lamina_dynamo.optimize("eager")(f), lamina_dynamo.optimize("eager", fullgraph=True)(f)):
        plain = watched(f)
        assert watched(compiled) == plain  # nothing is compiled yet
        compiled(torch.ones(2))
        graphs = lamina_dynamo.counters()["graphs"]
        assert graphs and watched(compiled) == plain and lamina_dynamo.counters()["graphs"] == graphs
        assert torch.equal(compiled(torch.ones(2)), f(torch.ones(2)))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring")
def test_tools_under_sys_monitoring_see_the_programs_own_lines():
    monitoring = sys.monitoring

    def f(x):
        y = x + 1
        y = y * 2
        return y - 1

    def watched(call, tool, local):
        lines = []
        monitoring.use_tool_id(tool, "test")
        try:
            monitoring.register_callback(
                tool, monitoring.events.LINE, lambda code, n: lines.append(n) if code is f.__code__ else None
            )
            if local:
                monitoring.set_local_events(tool, f.__code__, monitoring.events.LINE)
            else:
                monitoring.set_events(tool, monitoring.events.LINE)
            call(torch.ones(2))
        finally:
            monitoring.set_events(tool, 0)
            monitoring.set_local_events(tool, f.__code__, 0)
            monitoring.free_tool_id(tool)
        return lines

    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize("eager")(f)
    compiled(torch.ones(2))
    for tool in (monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID, 3):
        for local in (False, True):
            assert watched(compiled, tool, local) == watched(f, tool, local) != []
    assert lamina_dynamo.counters()["graphs"] == 1
    assert watched(compiled, monitoring.PROFILER_ID, False) != watched(f, monitoring.PROFILER_ID, False)


def test_recompile_limit_warns_once_and_leaves_the_frame_to_eager():
    def translate(code, f_locals, *rest, **options):
        result = answer_1042(code, f_locals, *rest, **options)
        return TranslationResult(result.code, [Guard(LocalSource("x"), "CONSTANT", f_locals["x"])])

    def f(x):
        return 42

    g = stand_in(translate)(f)
    with pytest.warns(convert_frame.RecompileWarning, match="limit"):
        values = [g(str(i)) for i in range(14)]
    assert values[:8] == [1042] * 8 and values[-1] == 42
    assert g("3") == 1042
    why = lamina_dynamo.explain_recompile(f)
    assert why[0].expression == "x" and why[0].old == "'0'" and why[0].new == "'1'"


def test_fullgraph_error_names_kind_line_and_hint():
    def f(x):
        y = x + 1
        lamina_dynamo.graph_break()
        return y * 2

    with pytest.raises(lamina_dynamo.GraphBreakError) as info:
        lamina_dynamo.optimize("eager", fullgraph=True)(f)(torch.ones(2))
    assert info.value.kind == "user_request" and "test_eval_frame.py" in info.value.user_line and info.value.hint


def test_events_and_counters():
    events = []
    remove = lamina_dynamo.on_event(lambda e: events.append(e.name))
    try:
        g = lamina_dynamo.optimize("eager")(lambda x: x.sin())
        g(torch.ones(2))
        g(torch.ones(2, dtype=torch.float64))
    finally:
        remove()
    assert events.count("frame compiled") == 2 and events.count("recompile") == 1
    counts = lamina_dynamo.counters()
    assert counts["compiled"] == 2 and sum(counts["recompiles"].values()) == 1


def test_compiled_module_is_the_module():
    m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    c = lamina_dynamo.optimize("eager")(m)
    x = torch.ones(1, 2)
    assert torch.equal(c(x), m(x))
    assert list(c.state_dict()) == list(m.state_dict()) and len(c) == 2 and c[0] is m[0]
    c.note = 3
    assert m.note == 3
    c.eval()
    assert not m.training


def test_reset_forgets():
    g = stand_in(answer_1042)(lambda: 42)
    assert g() == 1042
    code = g.__wrapped__.__code__
    assert len(_eval_frame.code_entries(code)) == 1
    lamina_dynamo.reset()
    assert _eval_frame.code_entries(code) == []
    assert g() == 1042


def test_unknown_backend_is_named():
    with pytest.raises(ValueError, match="eager"):
        lamina_dynamo.optimize("no such backend")


def test_the_hook_by_itself():
    import pathlib
    import subprocess

    script = pathlib.Path(__file__).with_name("native_check.py")
    folder = pathlib.Path(_eval_frame.__file__).parent
    subprocess.run([sys.executable, str(script), str(folder)], check=True)


def test_torch_compile_in_the_same_process():
    def f(x):
        return (x + 1).relu()

    x = torch.randn(3)
    theirs = torch.compile(f, backend="eager")
    ours = lamina_dynamo.optimize("eager")(f)
    for _ in range(2):
        assert torch.equal(theirs(x), f(x)) and torch.equal(ours(x), f(x))
    outer = lamina_dynamo.optimize("eager")(lambda x: theirs(x) * 2)
    assert torch.equal(outer(x), f(x) * 2)
    assert torch.equal(torch.compile(lambda x: ours(x) * 2, backend="eager")(x), f(x) * 2)


@lamina_dynamo.allow_in_graph
def _opaque(x, k):
    if x.sum() > 0:  # could not be captured
        return x * k
    return x


def test_allow_in_graph():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    x = torch.ones(2)
    g = lamina_dynamo.optimize(backend, fullgraph=True)(lambda x: torch.sin(_opaque(x, 3)))
    with pytest.raises(lamina_dynamo.GraphBreakError):
        # Metadata cannot be found by running it on values that are not there.
        g(x)


def test_allow_in_graph_of_a_function_that_works_on_metadata():
    graphs = []

    def backend(gm, inputs):
        graphs.append([n.target for n in gm.graph.nodes if n.op == "call_function"])
        return gm.forward

    def fn(x):
        return x * 2 + 1

    lamina_dynamo.allow_in_graph(fn)
    x = torch.ones(2)
    g = lamina_dynamo.optimize(backend, fullgraph=True)(lambda x: torch.sin(fn(x)))
    assert torch.equal(g(x), torch.sin(x * 2 + 1))
    assert graphs == [[fn, torch.sin]]


def test_disallow_in_graph_breaks():
    def fn(x):
        return x * 2

    lamina_dynamo.disallow_in_graph(fn)
    x = torch.ones(2)

    def f(x):
        return fn(x + 1) - 1

    assert torch.equal(lamina_dynamo.optimize("eager")(f)(x), f(x))
    assert lamina_dynamo.counters()["breaks"] == {"skipped_callable": 1}
    assert lamina_dynamo.counters()["graphs"] == 3  # before, the function itself, after


def test_assume_constant_result():
    calls = []

    @lamina_dynamo.assume_constant_result
    def expensive(k):
        calls.append(k)
        return k * 10

    g = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x: x + expensive(4))
    x = torch.zeros(1)
    assert float(g(x)) == 40.0 and float(g(x)) == 40.0
    assert calls == [4]


def test_compiled_inside_compiled_is_one_graph():
    inner = lamina_dynamo.optimize("eager")(lambda x: x + 1)
    x = torch.ones(2)
    assert torch.equal(lamina_dynamo.optimize("eager", fullgraph=True)(lambda x: inner(x) * 2)(x), (x + 1) * 2)
    assert lamina_dynamo.counters()["graphs"] == 1


def test_is_compiling():
    g = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x: x + 1 if lamina_dynamo.is_compiling() else x)
    assert float(g(torch.zeros(()))) == 1.0
    assert not lamina_dynamo.is_compiling()


def test_fronts_of_other_compilers_are_followed():
    def f(x):
        return x + 1

    def front(x):
        raise AssertionError("not followed")

    front.__lamina_original__ = f
    g = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x: front(x) * 2)
    assert float(g(torch.ones(()))) == 4.0


def test_a_function_without_tensors_runs_as_it_is_and_so_do_its_callees():
    seen = []

    def helper(k):
        return [i * k for i in range(3)]

    def f(k):
        return sum(helper(k))

    remove = lamina_dynamo.on_event(lambda e: seen.append((e.name, e.payload["code"].co_name)))
    try:
        g = lamina_dynamo.optimize("eager", fullgraph=True)(f)
        assert g(2) == 6 and g(2) == 6
    finally:
        remove()
    assert seen == [("frame skipped", "f")]


class Owner:
    scale = 3

    @lamina_dynamo.disable
    def left(self, x, *, more=0):
        return x * self.scale + (1 if lamina_dynamo.is_compiling() else 2) + more

    @staticmethod
    @lamina_dynamo.disable
    def loose(x):
        return x - 1

    @lamina_dynamo.disable
    def __call__(self, x):
        return x / 2


def test_a_disabled_function_in_a_class_is_a_method():
    owner, x = Owner(), torch.ones(2)
    programs = [
        lambda t: owner.left(t.sin(), more=1) + 1,
        lambda t: Owner().left(t) * 2,
        lambda t: Owner.left(owner, t + 1),
        lambda t: owner.loose(t) + Owner.loose(t),
        lambda t: owner(t) + 1,
        lambda t: [m(t) for m in (owner.left,)][0],
    ]
    for program in programs:
        torch.testing.assert_close(lamina_dynamo.optimize("eager")(program)(x), program(x))


def test_a_function_whose_last_instruction_raises():
    def f(x): raise KeyError("mine")

    def g(x):
        y = x + 1
        raise ValueError(y.shape)

    for fn, error in ((f, KeyError), (g, ValueError)):
        def outer(x, fn=fn):
            lamina_dynamo.graph_break()
            return fn(x)

        for called in (fn, outer):
            with pytest.raises(error):
                lamina_dynamo.optimize("eager")(called)(torch.ones(2))
