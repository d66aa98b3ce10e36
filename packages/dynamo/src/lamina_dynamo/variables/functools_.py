"""functools: partial objects, reduce, caches, cached_property, singledispatch, cmp_to_key, total_ordering helpers."""

from __future__ import annotations

import functools
import operator
import types
import weakref
from typing import Any

from .attributes import find_in_mro
from .base import ObservedException, VariableTracker
from .builder import wraps_type
from .builtin import CONSTRUCTORS, HANDLERS, handles
from .container import TupleVariable
from .dicts import DictVariable
from .function import FUNCTION_FACTORIES, UserFunctionVariable
from .methods import BoundMethodVariable
from .operators import compare
from .user_object import UserObjectVariable


class PartialVariable(UserObjectVariable):
    """functools.partial."""

    __slots__ = ("args", "fn", "keywords")

    def __init__(
        self,
        fn: VariableTracker,
        args: list[VariableTracker],
        keywords: DictVariable,
        value: Any = None,
        source: Any = None,
    ):
        super().__init__(value, source, functools.partial)
        self.fn = fn
        self.args = args
        self.keywords = keywords

    def describe(self) -> str:
        return f"partial of {self.fn.describe()}"

    def truth(self, tx: Any) -> bool:
        return True

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        if name == "func":
            return self.fn
        if name == "args":
            return TupleVariable(list(self.args))
        return self.keywords if name == "keywords" else None

    def hash_key(self, tx: Any) -> Any:
        from .keys import IdentityKey

        return IdentityKey(self)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        merged = {k.as_python_constant(): v for k, v in self.keywords.pairs(tx)}
        merged.update(kwargs)
        return self.fn.call_function(tx, [*self.args, *args], merged)

    def children(self) -> Any:
        yield self.fn
        yield from self.args
        yield self.keywords
        yield from super().children()

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(make_partial)
        codegen(self.fn)
        for arg in self.args:
            codegen(arg)
        codegen.build("BUILD_TUPLE", len(self.args))
        codegen(self.keywords)
        codegen.call_function(3)
        codegen.remember(self)
        codegen.output.side_effects.pending_fill.append(self)


def make_partial(fn: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A partial object, for generated code; a partial of a partial is not flattened twice."""
    made = functools.partial.__new__(functools.partial, _nothing)
    made.__setstate__((fn, args, keywords, None))
    return made


def _nothing() -> None:
    return None


def _make_partial(
    tx: Any, fn: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    fn = fn.realize()
    if find_in_mro(tx, fn.python_type(), "__call__") is None:
        tx.raise_exception(TypeError, "the first argument must be callable")
    keywords = DictVariable.from_pairs(tx, [(tx.const(k), v) for k, v in kwargs.items()])
    if isinstance(fn, PartialVariable) and not fn.attrs and fn.value is None:
        inner = {k.as_python_constant(): v for k, v in fn.keywords.pairs(tx)}
        inner.update(kwargs)
        keywords = DictVariable.from_pairs(tx, [(tx.const(k), v) for k, v in inner.items()])
        return PartialVariable(fn.fn, [*fn.args, *args], keywords)
    return PartialVariable(fn, list(args), keywords)


CONSTRUCTORS[functools.partial] = _make_partial


@wraps_type(functools.partial)
def wrap_partial(tx: Any, value: Any, source: Any) -> VariableTracker:
    from ..source import AttrSource

    def part(name: str) -> Any:
        return None if source is None else AttrSource(source, name)

    if source is not None:
        tx.output.guard(source, "TYPE", functools.partial)
    fn = tx.wrap(value.func, part("func"))
    args = tx.wrap(value.args, part("args")).realize()
    keywords = tx.wrap(value.keywords, part("keywords")).realize()
    return PartialVariable(fn, list(args.items), keywords, value, source)


@handles(functools.reduce)
def _reduce(
    tx: Any, fn: VariableTracker, iterable: VariableTracker, initial: VariableTracker | None = None
) -> VariableTracker:
    iterator = iterable.realize().iterate(tx)
    total = initial
    if total is None:
        try:
            total = iterator.next(tx)
        except ObservedException as e:
            if e.matches(StopIteration):
                tx.raise_exception(TypeError, "reduce() of empty iterable with no initial value")
            raise
    while True:
        try:
            item = iterator.next(tx)
        except ObservedException as e:
            if e.matches(StopIteration):
                return total
            raise
        total = fn.call_function(tx, [total, item], {})


class CacheWrapperVariable(UserObjectVariable):
    """A function under lru_cache or cache.

    A call is traced to see that it has no effects; then the real function is called, now, and what its cache gives is
    what the graph uses: the same object in each call, as in eager. One that prints or logs and gives a constant is
    called where the region's prints are made, and its cache decides whether it says anything. Other effects are left to
    eager.
    """

    __slots__ = ("seen",)
    is_mutable = False

    def __init__(self, value: Any, source: Any = None):
        super().__init__(value, source)
        self.seen: dict[Any, VariableTracker] = {}

    def truth(self, tx: Any) -> bool:
        return True

    def wrapped(self, tx: Any) -> VariableTracker:
        from ..source import AttrSource

        source = None if self.source is None else AttrSource(self.source, "__wrapped__")
        return tx.wrap(self.value.__wrapped__, source)

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        key = (
            tuple(a.realize().hash_key(tx) for a in args),
            tuple((k, v.realize().hash_key(tx)) for k, v in kwargs.items()),
        )
        known = self.seen.get(key)
        if known is None:
            known = self.seen[key] = self.first_call(tx, args, kwargs)
        return known

    def first_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if self.source is None:  # decorated inside the region: no cache outlives it
            return self.wrapped(tx).call_function(tx, args, kwargs)
        output = tx.output
        given = [_real_argument(a) for a in args]
        named = {k: _real_argument(v) for k, v in kwargs.items()}
        known = not any(v is _UNKNOWN for v in (*given, *named.values()))
        tx.direct_call = False  # a break inside is a break of this call: eager fills the cache
        effects, last = output.side_effects, output.graph._root.prev
        changes, calls = effects.state_of_changes(), len(effects.calls)
        result = self.wrapped(tx).call_function(tx, args, kwargs).realize()
        says_only = len(effects.calls) > calls and result.is_python_constant() and output.graph._root.prev is last
        if says_only:
            del effects.calls[calls:]
        if effects.state_of_changes() != changes:
            tx.graph_break("side_effect", operation=f"call of the cached function {self.value.__name__}")
        if says_only:
            effects.record_call(self.value, args, kwargs)
            return result
        if output.graph is not output.root_graph or getattr(result, "source", None) is not None:
            return result
        node = output.graph._root.prev
        while node is not last:
            if "impure" in node.meta:
                tx.graph_break("side_effect", operation=f"call of the cached function {self.value.__name__}")
            node = node.prev
        if not known:
            if result.is_python_constant():
                return result
            tx.graph_break("side_effect", operation=f"call of the cached function {self.value.__name__}")
        return self.real_call(tx, given, named)

    def real_call(self, tx: Any, given: list[Any], named: dict[str, Any]) -> VariableTracker:
        """What the cache gives for real arguments; holds until the cache is cleared."""
        from ..roots import ConstantSource
        from ..source import PythonSource

        value = self.value(*given, **named)
        misses = self.value.cache_info().misses
        tx.output.guard(PythonSource(self.source, _was_not_cleared, misses), "CONSTANT", True)
        return tx.wrap(value, ConstantSource(f"{self.value.__name__}(...)", value))

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "__wrapped__":
            return self.wrapped(tx)
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return tx.const(getattr(self.value, name))
        if name == "__class__":
            return self.class_vt(tx)
        tx.graph_break("unknown_attribute", type="lru_cache wrapper", attribute=name)

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: Any) -> VariableTracker:
        return self if obj is None else BoundMethodVariable(self, obj)

    def hash_key(self, tx: Any) -> Any:
        from .keys import ConstantKey

        return ConstantKey(self.value)

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_global_alias("cached", self.value)


_UNKNOWN = object()


def _real_argument(vt: VariableTracker) -> Any:
    """The object itself, if it exists already and the region did not change it."""
    vt = vt.realize()
    if vt.is_python_constant():
        return vt.as_python_constant()
    if getattr(vt, "is_symbolic_number", False):
        return vt.known(vt.python_type())  # type: ignore[attr-defined]
    value = getattr(vt, "value", None)
    if vt.source is None or value is None or not isinstance(vt, UserObjectVariable) or vt.attrs:
        return _UNKNOWN
    return value


def _was_not_cleared(function: Any, misses: int) -> bool:
    return bool(function.cache_info().misses >= misses)


@wraps_type(type(functools.lru_cache(_nothing)))
def wrap_cache_wrapper(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return CacheWrapperVariable(value, source)


class CachedPropertyVariable(UserObjectVariable):
    """functools.cached_property from outside: the value goes into the instance dict on first use."""

    __slots__ = ()
    is_mutable = False

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: Any) -> VariableTracker:
        if obj is None:
            return self
        from ..source import AttrSource

        name = self.value.attrname
        if name is None:
            tx.raise_exception(TypeError, "Cannot use cached_property instance without calling __set_name__ on it.")
        known = obj.instance_attr(tx, name, True) if hasattr(obj, "instance_attr") else None
        if known is not None:
            return known
        fn = tx.wrap(self.value.func, None if self.source is None else AttrSource(self.source, "func"))
        value = fn.call_function(tx, [obj], {})
        obj.store_attr(tx, name, value)  # type: ignore[attr-defined]
        return value


@wraps_type(functools.cached_property)
def wrap_cached_property(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "ID", value)
    return CachedPropertyVariable(value, source)


class MadeCachedProperty(VariableTracker):
    """A cached_property made inside the region."""

    __slots__ = ("fn", "name")

    def __init__(self, fn: VariableTracker):
        super().__init__(None)
        self.fn = fn
        self.name: str | None = None

    def python_type(self) -> type:
        return functools.cached_property

    def call_special(self, tx: Any, name: str, args: Any, missing: Any = None) -> VariableTracker:
        if name == "__set_name__":
            self.name = args[1].as_python_constant()
            return tx.const(None)
        return super().call_special(tx, name, args, missing)

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: Any) -> VariableTracker:
        if obj is None:
            return self
        known = obj.instance_attr(tx, self.name, True)  # type: ignore[attr-defined]
        if known is not None:
            return known
        value = self.fn.call_function(tx, [obj], {})
        obj.store_attr(tx, self.name, value)  # type: ignore[attr-defined]
        return value

    def children(self) -> Any:
        return (self.fn,)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(make_cached_property)
        codegen(self.fn)
        codegen.load_const(self.name)
        codegen.call_function(2)


def make_cached_property(fn: Any, name: str | None) -> Any:
    """A cached_property that knows its name, for generated code."""
    made = functools.cached_property(fn)
    made.attrname = name
    return made


CONSTRUCTORS[functools.cached_property] = lambda tx, fn: MadeCachedProperty(fn)


# -- singledispatch ----------------------------------------------------------------------------------------------------

_DISPATCH_CODE = next(
    (
        c
        for c in functools.singledispatch.__code__.co_consts
        if isinstance(c, types.CodeType) and c.co_name == "dispatch"
    ),
    None,
)


class DispatchVariable(UserFunctionVariable):
    """The `dispatch` function inside a singledispatch function: run for real on a known class."""

    __slots__ = ()

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        from .formatting import run_checked

        names = self.fn.__code__.co_freevars
        cache = self.fn.__closure__[names.index("dispatch_cache")].cell_contents  # type: ignore[index]
        if type(cache) is not weakref.WeakKeyDictionary:  # looking something up in it is the program's business
            return super().call_function(tx, args, kwargs)
        registry_cell = names.index("registry")
        registry = tx.output.side_effects.load_cell(self.get_closure(tx)[registry_cell]).realize()
        registry.guard_all_keys(tx)
        cls = args[0].realize()
        if not cls.is_python_constant():
            tx.graph_break("unknown_call", function="singledispatch on a class made inside")
        implementation = run_checked(tx, lambda: self.fn(cls.as_python_constant()))
        for key, value in registry.pairs(tx):
            real = registry.real[key.as_python_constant()] if key.is_python_constant() else None
            if real is implementation:
                return value
        return tx.wrap(implementation, None)


def _wrap_dispatch(tx: Any, value: Any, source: Any) -> VariableTracker:
    if source is not None:
        tx.output.guard(source, "FUNCTION_CODE", value)
    return DispatchVariable(value, source)


FUNCTION_FACTORIES.append((lambda fn: fn.__code__ is _DISPATCH_CODE, _wrap_dispatch))


def _bind_dispatching_method(
    tx: Any, descriptor: VariableTracker, obj: VariableTracker, cls: VariableTracker | None = None
) -> VariableTracker:
    from ..translator.polyfills import dispatching_method

    return tx.inline_real(dispatching_method, descriptor, obj, tx.const(None) if cls is None else cls)


_bind = functools.singledispatchmethod.__get__
if "_method_cache" in _bind.__code__.co_names:  # 3.13: it keeps the method it makes, under a weak reference
    HANDLERS[_bind] = _bind_dispatching_method


# -- cmp_to_key --------------------------------------------------------------------------------------------------------


class CmpKeyVariable(VariableTracker):
    """What `cmp_to_key(cmp)` makes, and its keys."""

    __slots__ = ("cmp", "obj")

    def __init__(self, cmp: VariableTracker, obj: VariableTracker | None = None):
        super().__init__(None)
        self.cmp = cmp
        self.obj = obj

    def python_type(self) -> type:
        return type(functools.cmp_to_key(_compare_nothing))

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return CmpKeyVariable(self.cmp, args[0])

    def get_attr(self, tx: Any, name: str) -> VariableTracker:
        if name == "obj" and self.obj is not None:
            return self.obj
        return super().get_attr(tx, name)

    def binary_op(self, tx: Any, op: Any, other: VariableTracker, reflected: bool = False) -> Any:
        other = other.realize()
        if not isinstance(other, CmpKeyVariable) or other.obj is None or self.obj is None:
            return NotImplemented
        if op not in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq):
            return NotImplemented
        return compare(tx, op, self.cmp.call_function(tx, [self.obj, other.obj], {}), tx.const(0))

    def children(self) -> Any:
        return (self.cmp,) if self.obj is None else (self.cmp, self.obj)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(functools.cmp_to_key)
        codegen(self.cmp)
        codegen.call_function(1)
        if self.obj is not None:
            tx_temp = codegen.store_temp()
            codegen.push_function(_call_one)
            codegen.load_temp(tx_temp)
            codegen(self.obj)
            codegen.call_function(2)


def _call_one(fn: Any, arg: Any) -> Any:
    return fn(arg)


def _compare_nothing(a: Any, b: Any) -> int:
    return 0


HANDLERS[functools.cmp_to_key] = lambda tx, mycmp: CmpKeyVariable(mycmp)
