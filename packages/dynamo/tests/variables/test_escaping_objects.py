"""What must stay true of objects that pass a graph break or leave the region: identity, descriptors, slots, chains."""

import contextlib
import re
import sys
import threading
import weakref

import pytest
import torch
from differential import check

import lamina_dynamo

PROGRAMS = []


def program(make=None, full=True):
    def register(fn):
        PROGRAMS.append(pytest.param(fn, make or (lambda: (torch.arange(3.0),)), full, id=fn.__name__))
        return fn

    return register


aside = lamina_dynamo.disable(lambda value: value)


class Stored:
    """A descriptor that keeps its value under its own name in the instance dict."""

    def __init__(self, name):
        self.name = name

    def __get__(self, obj, cls=None):
        return self if obj is None else obj.__dict__.get(self.name, 0) + 1

    def __set__(self, obj, value):
        obj.__dict__[self.name] = value


class Holder:
    value = Stored("value")


class Watched:
    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        return found * 2 if name == "value" else found


def holder(cls):
    obj = cls()
    obj.value = torch.ones(3)
    return torch.arange(3.0), obj


@program(make=lambda: holder(Holder))
def descriptor_over_an_instance_entry(x, obj):
    return obj.value + x, obj.__dict__["value"] * x


@program(make=lambda: holder(Watched))
def own_getattribute_over_an_instance_entry(x, obj):
    return obj.value + x, obj.__dict__["value"] * x


@program(full=False)
def descriptor_after_a_break(x):
    obj = Holder()
    obj.value = x
    return aside(obj).value


@program()
def slots_of_a_class_made_inside(x):
    class Slotted:
        __slots__ = ("a", "b", "__dict__")

        def __init__(self, a):
            self.a = a

    s = Slotted(x)
    s.c = 5
    try:
        _ = s.b
    except AttributeError as e:
        text = str(e)
    return s.a + s.c, s.__dict__, text, s


@program(full=False)
def base_class_passes_a_break(x):
    class A:
        def f(self):
            return x + 1

    class B(aside(A)):
        def f(self):
            return super().f() * 2

    class C(B):
        def f(self):
            return super().f(), super(B, self).f()

    return B().f(), C().f()


@program()
def args_are_one_tuple(x):
    seen = []
    try:
        raise KeyError("a", x)
    except KeyError as e:
        seen.append(e.args)
        seen.append(e.args)
        kept = e
    return x + 1, seen, kept, kept.args is seen[0]


@program(full=False)
def args_are_one_tuple_after_a_break(x):
    try:
        raise KeyError("a")
    except KeyError as e:
        first = e.args
        aside(0)
        return x + 1, first, e.args, first is e.args


@program()
def traceback_reaches_exit(x):
    log = []

    class Manager:
        def __init__(self, fails):
            self.fails = fails

        def __enter__(self):
            return self

        def __exit__(self, kind, value, traceback):
            log.append((kind, traceback is not None, sys.exc_info()[2] is not None))
            if self.fails:
                raise IndexError("exit")

    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(Manager(True))
            stack.enter_context(Manager(True))
            raise ValueError("body")
    except IndexError as e:
        return x * 2, log, e.__context__.args, type(e.__context__.__context__)


@program()
def stop_iteration_leaves_a_generator(x):
    def numbers():
        yield x
        raise StopIteration("early")

    it = numbers()
    next(it)
    try:
        next(it)
    except RuntimeError as e:
        return x, str(e), e.__cause__.args, e.__cause__ is e.__context__


@program(full=False)
def names_of_a_generator(x):
    def numbers():
        yield x

    it = numbers()
    return list(aside(it)), it.__name__, it.__qualname__, numbers().__qualname__


@program()
def matches_of_a_pattern_twice(x):
    found = re.compile("[ab]").finditer("abcb")
    first = next(found)
    return x, first.group(), [m.span() for m in found], [m[0] for m in re.finditer(r"\d", "1a2")]


@program()
def repeated_keyword_names_the_function(x):
    def named(a):
        return a

    try:
        named(a=1, **{"a": x})
    except TypeError as e:
        return x, str(e)


class Thing:
    pass


def with_weak_set():
    things = weakref.WeakSet()
    thing, other = Thing(), Thing()
    things.add(thing)
    return torch.arange(3.0), things, thing, other


@program(make=with_weak_set)
def weak_references_compare_by_what_they_refer_to(x, things, thing, other):
    a, b = weakref.ref(thing), weakref.ref(thing)
    return x + len(things), thing in things, other in things, a == b, a is b, a == weakref.ref(other), {a: 1}[b]


@program(full=False)
def dispatch_that_is_ambiguous(x):
    from collections.abc import Container, Sized
    from functools import singledispatch

    @singledispatch
    def kind(value):
        return "any"

    kind.register(Sized)(lambda value: "sized")
    kind.register(Container)(lambda value: "container")
    try:
        kind({})
    except RuntimeError as e:
        return x, sorted(str(e).replace("Ambiguous dispatch: ", "").split(" or "))


@program(full=False)
def cause_of_an_exception_that_passed_a_break(x):
    try:
        try:
            raise KeyError("k")
        except KeyError as e:
            raise aside(ValueError("v")) from aside(e)
    except ValueError as e:
        kept = aside(e)
    return x + 1, kept.__cause__.args, kept.__suppress_context__, kept.__context__ is kept.__cause__


@program(full=False)
def weakly_referenced_local_lives_on(x):
    thing = Thing()
    thing.value = x
    ref = weakref.ref(thing)
    return ref() is thing, x + aside(ref)().value


@program(full=False)
def slot_filled_and_emptied_again(x):
    class Slotted:
        __slots__ = ("a",)

    s = aside(Slotted())
    s.a = x
    value = s.a + 1
    del s.a
    return value, hasattr(s, "a")


@program(full=False)
def iterators_over_objects_made_inside(x):
    class Items:
        def __init__(self):
            self.left = 2

        def __iter__(self):
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            self.left -= 1
            return x + self.left

        def __getitem__(self, i):
            return [5, 6][i]

        def __len__(self):
            return 2

        def __call__(self, k=1):
            return x + k

    class ByIndex:
        def __getitem__(self, i):
            return (3, 4)[i]

    pairs = aside(zip(ByIndex(), Items()))
    return (
        list(pairs),
        list(aside(enumerate(Items()))),
        list(aside(map(Items(), [1, 2]))),
        list(aside(reversed(Items()))),
        next(aside(iter(Items(), 9))),
    )


LOCAL = threading.local()
LOCAL.there = 3


@program()
def attributes_a_thread_lacks(x):
    try:
        LOCAL.absent  # noqa: B018
    except AttributeError as e:
        return x + LOCAL.there, hasattr(LOCAL, "absent"), getattr(LOCAL, "absent", 2), e.name


FLAG = 3


@program()
def deleted_global_is_looked_up_again(x):
    global FLAG
    FLAG = FLAG + 0
    value = x * FLAG
    del FLAG
    try:
        FLAG  # noqa: B018
    except NameError as e:
        FLAG = 3  # noqa: F841
        return value, str(e)


class Counted:
    last = 1


@program(make=lambda: (torch.arange(3.0), Counted()))
def deleted_class_attribute_is_absent(x, obj):
    before = obj.last
    del Counted.last
    absent = hasattr(obj, "last")
    Counted.last = before
    return x + before, absent


@program(make=lambda: (torch.arange(3.0), {"a": 1, "b": 2}), full=False)
def views_see_changes_of_their_dict(x, d):
    from types import MappingProxyType

    keys, proxy = aside(d.keys()), aside(MappingProxyType(d))
    del d["a"]
    d["a"] = 5
    return x + proxy["a"], list(keys), list(proxy)


def views(d):
    from types import MappingProxyType

    return torch.arange(3.0), d, d.keys(), d.items(), MappingProxyType(d)


@program(make=lambda: views({"a": 1, "b": 2}))
def views_from_outside_see_changes(x, d, keys, items, proxy):
    del d["a"]
    d["a"] = 5
    return x + proxy["a"], list(keys), list(items), list(proxy)


@program()
def handlers_take_classes_only(x):
    seen = []

    class Meta(type):
        def __instancecheck__(cls, obj):
            return True

    class Any(Exception, metaclass=Meta):
        pass

    for kinds in ((KeyError, (ValueError,)), 5, Any, (Any, LookupError)):
        try:
            try:
                raise KeyError("k")
            except kinds as e:
                seen.append(("caught", e.args))
        except (TypeError, KeyError) as e:
            seen.append((type(e), e.args))
    for cause in (None, ValueError, ValueError("c"), 5):
        try:
            raise KeyError("x") from cause
        except Exception as e:
            seen.append((type(e), repr(e.__cause__), e.__suppress_context__))
    return x, seen


@program(full=False)
def fields_of_an_exception_after_a_break(x):
    try:
        raise OSError(2, "no such", "file")
    except FileNotFoundError as e:
        aside(0)
        return x, e.errno, e.strerror, e.filename, str(e), e.args


@program()
def starred_arguments_that_are_none(x):
    seen = []
    for call in (lambda: [*5], lambda: max(*5), lambda: max(**5), lambda: (lambda: 0)(*None), lambda: {**5}):
        try:
            call()
        except TypeError as e:
            seen.append(str(e))
    return x, seen


@pytest.mark.parametrize(("fn", "make", "full"), PROGRAMS)
def test_like_plain_python(fn, make, full):
    check(fn, make, full)


def test_an_argument_list_of_an_exception_from_outside():
    error = ValueError("kept", 3)

    @lamina_dynamo.optimize("eager", fullgraph=True)
    def fn(x):
        return x + error.args[1], error.args is error.args, error.args

    result, same, args = fn(torch.ones(2))
    assert same and args is error.args and torch.equal(result, torch.full((2,), 4.0))


def test_what_a_thread_lacks_is_guarded():
    fn = lamina_dynamo.optimize("eager", fullgraph=True)(lambda x: x + getattr(LOCAL, "more", 1))
    assert float(fn(torch.zeros(()))) == 1
    LOCAL.more = 5
    try:
        assert float(fn(torch.zeros(()))) == 5
    finally:
        del LOCAL.more
    assert float(fn(torch.zeros(()))) == 1
