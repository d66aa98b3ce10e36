import inspect

import pytest
import torch

import lamina


def test_a_function_keeps_its_name_signature_and_result(layers):
    def double(x, *, scale=2):
        """Doc."""
        return x * scale

    compiled = lamina.compile(double)
    assert compiled(torch.ones(2), scale=3).tolist() == [3, 3]
    assert (compiled.__name__, compiled.__doc__) == ("double", "Doc.")
    assert inspect.signature(compiled) == inspect.signature(double)


def test_as_a_decorator_with_and_without_arguments(layers):
    @lamina.compile
    def one(x):
        return x + 1

    @lamina.compile(fullgraph=True, dynamic=False)
    def two(x):
        return x + 2

    assert int(one(torch.tensor(1))) == 2 and int(two(torch.tensor(1))) == 3
    assert ("optimize", True, False) in [(c[0], *c[2:]) for c in layers.calls if c[0] == "optimize"]


def test_decorating_a_method_binds_self(layers):
    class Thing:
        bias = 3

        @lamina.compile
        def add(self, x):
            return x + self.bias

    assert int(Thing().add(torch.tensor(1))) == 4


def test_decorators_of_methods_in_both_orders(layers):
    class Thing:
        bias = 3

        @lamina.compile
        @staticmethod
        def double(x):
            return x * 2

        @lamina.compile(dynamic=False)
        @classmethod
        def add(cls, x):
            return x + cls.bias

        @staticmethod
        @lamina.compile
        def triple(x):
            return x * 3

    for owner in (Thing, Thing()):
        assert [int(f(torch.tensor(1))) for f in (owner.double, owner.add, owner.triple)] == [2, 4, 3]
    assert ("call", Thing.__dict__["add"].__func__.__lamina_original__) in layers.calls


def test_compiling_twice_does_not_stack(layers):
    def f(x):
        return x

    again = lamina.compile(lamina.compile(f), mode="max-autotune")
    assert again.__lamina_original__ is f


def test_a_callable_object_and_a_bound_method(layers):
    class Scale:
        def __call__(self, x):
            return x * 2

        def method(self, x):
            return x * 3

    assert int(lamina.compile(Scale())(torch.tensor(2))) == 4
    assert int(lamina.compile(Scale().method)(torch.tensor(2))) == 6


@pytest.mark.parametrize("arguments, word", [
    ({"mode": "fastest"}, "fastest"),
    ({"mode": 3}, "mode"),
    ({"backend": "indutcor"}, "inductor"),
    ({"backend": 3}, "backend"),
    ({"options": {"no_such_option": 1}}, "no_such_option"),
    ({"options": ["freezing"]}, "options"),
    ({"dynamic": "yes"}, "dynamic"),
    ({"fullgraph": "yes"}, "fullgraph"),
])
def test_a_wrong_argument_is_refused_at_once_and_named(layers, monkeypatch, arguments, word):
    from lamina import backends

    monkeypatch.setattr(backends, "_registered", lambda: [])
    with pytest.raises(lamina.OptionError, match=word):
        lamina.compile(lambda x: x, **arguments)


@pytest.mark.parametrize("thing", [3, None.__class__, torch.nn.Linear])
def test_only_callables_that_are_no_classes_compile(layers, thing):
    with pytest.raises(lamina.OptionError):
        lamina.compile(thing)


def test_script_modules_come_back_unchanged(layers):
    traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))
    assert lamina.compile(traced) is traced


def test_list_modes_and_every_mode_is_accepted(layers):
    for mode in lamina.list_modes():
        assert int(lamina.compile(lambda x: x + 1, mode=mode)(torch.tensor(1))) == 2


def test_equal_settings_share_one_backend_object(layers):
    for _ in range(2):
        lamina.compile(lambda x: x)
    lamina.compile(lambda x: x, mode="max-autotune")
    first, second, other = [c[1] for c in layers.calls if c[0] == "optimize"]
    assert first is second and first is not other


def test_what_capture_raises_becomes_a_compile_error_with_the_cause(layers):
    layers.fail["capture"] = cause = layers.CaptureError("cannot go on")
    cause.hint = "write it otherwise"
    with pytest.raises(lamina.CompileError, match="cannot go on") as info:
        lamina.compile(lambda x: x, fullgraph=True)(torch.ones(1))
    assert info.value.__cause__ is cause and info.value.hint == "write it otherwise"
    with pytest.raises(lamina.CompileError):
        lamina.compile(torch.nn.ReLU(), fullgraph=True)(torch.ones(1))


def test_an_exception_of_the_program_passes_through(layers):
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        lamina.compile(f)(torch.ones(1))


def test_reset_reaches_capture(layers):
    lamina.reset()
    assert ("reset",) in layers.calls
