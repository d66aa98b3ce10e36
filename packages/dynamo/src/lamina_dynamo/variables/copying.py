"""copy.copy and copy.deepcopy, with the hooks of the copy and pickle protocols."""

from __future__ import annotations

import collections
import copy
import copyreg
import types
import weakref
from typing import Any

from .attributes import DELETED, find_in_type
from .base import VariableTracker
from .builtin import handles
from .constant import EnumConstant, is_none
from .container import ListVariable, TupleVariable
from .dict_kinds import DefaultDictVariable
from .dicts import DictVariable
from .reflection import AddressVariable
from .sets import FrozenSetVariable, SetVariable
from .user_object import UserObjectVariable

_ATOMIC = (int, float, bool, str, bytes, complex, type(None), type(Ellipsis), type, range, property, types.FunctionType,
           types.BuiltinFunctionType, type(NotImplemented), weakref.ref, types.CodeType)  # fmt: skip


_COPIED = frozenset({"UserObjectVariable", "ExceptionVariable", "ModuleVariable"})


@handles(copy.copy)
def _copy(tx: Any, obj: VariableTracker) -> VariableTracker:
    return shallow_copy(tx, obj.realize())


@handles(copy.deepcopy)
def _deepcopy(
    tx: Any, obj: VariableTracker, memo: VariableTracker | None = None, _nil: VariableTracker | None = None
) -> VariableTracker:
    inner = None if memo is None else memo.realize()
    if inner is None or is_none(inner):
        inner = DictVariable()
    if not isinstance(inner, DictVariable):
        tx.graph_break("copying", type=inner.python_type().__name__, argument="memo")
    return deep_copy(tx, obj.realize(), inner)


def memo_key(vt: VariableTracker) -> Any:
    """The key under which `memo[id(obj)]` is stored; None for objects without identity."""
    if not vt.has_identity and vt.source is None:
        return None
    return AddressVariable(vt)


def remember(tx: Any, memo: DictVariable, vt: VariableTracker, fresh: VariableTracker) -> None:
    key = memo_key(vt)
    if key is not None:
        memo.insert(key.hash_key(tx), key, fresh)


def is_atomic(vt: VariableTracker) -> bool:
    kind = vt.python_type()
    return kind in _ATOMIC or issubclass(kind, type) or isinstance(vt, EnumConstant) or hasattr(vt, "is_enum_member")


def has_own_method(tx: Any, vt: VariableTracker, name: str) -> bool:
    """Whether a class of the object, written in Python, defines the method."""
    found = find_in_type(tx, vt, name)
    return (
        found is not None
        and found.owner is not object
        and (found.vt is not None or isinstance(found.real, types.FunctionType))
    )


def shallow_copy(tx: Any, vt: VariableTracker) -> VariableTracker:
    """`copy.copy(vt)`."""
    hook = getattr(vt, "copy_object", None)
    if hook is not None:
        return hook(tx, None)
    if has_own_method(tx, vt, "__copy__"):
        return vt.call_special(tx, "__copy__", [])
    kind = vt.python_type()
    if is_atomic(vt) or kind in (tuple, frozenset, slice):
        return vt
    if type(vt) is ListVariable:
        return ListVariable(list(vt.items))
    if isinstance(vt, DictVariable) and getattr(vt, "owner", None) is None:
        if getattr(vt, "attrs", None):
            tx.graph_break("copying", type=kind.__name__, reason="attributes stored on it")
        return vt.method_copy(tx)
    if isinstance(vt, (SetVariable, ListVariable)) and getattr(vt, "owner", None) is None:
        return vt.method_copy(tx)  # type: ignore[union-attr]
    return copy_user_object(tx, vt, None)


def copy_user_object(tx: Any, vt: VariableTracker, memo: DictVariable | None) -> VariableTracker:
    """What `copyreg.__reduce_ex__` (protocol 4) and `copy._reconstruct` do."""
    for name in ("__reduce_ex__", "__reduce__"):
        if has_own_method(tx, vt, name):
            return rebuild(tx, vt, vt.call_special(tx, name, [tx.const(4)] if name == "__reduce_ex__" else []), memo)
    if not isinstance(vt, UserObjectVariable) or type(vt).__name__ not in _COPIED:
        tx.graph_break("copying", type=vt.python_type().__name__)
    if vt.python_type() in copyreg.dispatch_table:
        tx.graph_break("copying", type=vt.python_type().__name__, reason="copyreg")

    from .exception import ExceptionVariable

    new_args: list[VariableTracker] | None = None
    for name in ("__getnewargs_ex__", "__getnewargs__"):
        if name == "__getnewargs__" and isinstance(vt.storage, TupleVariable):
            continue
        if has_own_method(tx, vt, name):
            if name == "__getnewargs_ex__" or isinstance(vt, ExceptionVariable):
                tx.graph_break("copying", type=vt.python_type().__name__, method=name)
            new_args = vt.call_special(tx, name, []).unpack(tx)
            break

    def inner(child: VariableTracker) -> VariableTracker:
        return child if memo is None else deep_copy(tx, child.realize(), memo)

    if new_args is not None:
        cls = vt.class_vt(tx)
        fresh = cls.get_attr(tx, "__new__").call_function(tx, [cls, *map(inner, new_args)], {}).realize()
    elif isinstance(vt, ExceptionVariable):
        fresh = ExceptionVariable(vt.cls, [inner(a) for a in vt.args_vts], vt.class_vt(tx))
    else:
        fresh = UserObjectVariable(None, None, vt.cls, _copy_storage(tx, vt.storage, inner), vt.class_vt(tx))
    if memo is not None:
        remember(tx, memo, vt, fresh)
    if has_own_method(tx, vt, "__getstate__") or has_own_method(tx, vt, "__setstate__"):
        state = vt.call_special(tx, "__getstate__", []) if has_own_method(tx, vt, "__getstate__") else state_of(tx, vt)
        state = state.realize()
        if not is_none(state):
            set_state(tx, fresh, inner(state).realize())
        return fresh
    if not isinstance(fresh, UserObjectVariable):
        tx.graph_break("copying", type=vt.python_type().__name__, reason="__new__ gave another kind of object")
    if vt.has_instance_dict():
        for name in vt.attr_names(tx):
            value = vt.instance_attr(tx, name, True)
            if value is not None:
                fresh.attrs[name] = inner(value)
    for descriptor in python_slots(vt.cls):
        slot = vt.get_slot(tx, descriptor)
        if slot is not None and slot is not DELETED:
            fresh.set_slot(tx, descriptor, inner(slot))
    return fresh


def python_slots(cls: type) -> list[Any]:
    """Descriptors of the `__slots__` entries of a class and its bases."""
    return [
        value
        for klass in (cls.__mro__ or ())
        if klass.__flags__ & (1 << 9)
        for value in klass.__dict__.values()
        if type(value) is types.MemberDescriptorType and value.__objclass__ is klass
    ]


def _copy_storage(tx: Any, storage: Any, inner: Any) -> VariableTracker | None:
    if storage is None:
        return None
    if isinstance(storage, TupleVariable):
        return TupleVariable([inner(i) for i in storage.items])
    if isinstance(storage, ListVariable):
        return storage.make([inner(i) for i in storage.items])
    if isinstance(storage, DictVariable):
        fresh = type(storage)()
        if isinstance(storage, DefaultDictVariable):
            fresh.default_factory = storage.default_factory  # type: ignore[attr-defined]
        for k, v in storage.pairs(tx):
            key = inner(k)
            fresh.insert(key.realize().hash_key(tx), key, inner(v))
        return fresh
    return storage if not storage.is_mutable else type(storage)(dict(storage.entries))


def state_of(tx: Any, vt: UserObjectVariable) -> VariableTracker:
    """`object.__getstate__(vt)`: the instance dict, with the slots beside it if there are any."""
    pairs = [(tx.const(n), vt.instance_attr(tx, n, True)) for n in vt.attr_names(tx)] if vt.has_instance_dict() else []
    attrs: Any = DictVariable.from_pairs(tx, pairs) if pairs else tx.const(None)
    slots = []
    for descriptor in python_slots(vt.cls):
        value = vt.get_slot(tx, descriptor)
        if value is not None and value is not DELETED and descriptor.__name__ not in ("__dict__", "__weakref__"):
            slots.append((tx.const(descriptor.__name__), value))
    if not slots:
        return attrs
    return TupleVariable([attrs, DictVariable.from_pairs(tx, slots)])


def set_state(tx: Any, fresh: VariableTracker, state: VariableTracker) -> None:
    """What `copy._reconstruct` does with the state of an object."""
    if fresh.has_attr(tx, "__setstate__"):
        fresh.call_method(tx, "__setstate__", [state], {})
        return
    slots: VariableTracker | None = None
    if isinstance(state, TupleVariable) and len(state.items) == 2:
        state, slots = (i.realize() for i in state.items)
    if not is_none(state):
        fresh.get_attr(tx, "__dict__").call_method(tx, "update", [state], {})
    if slots is not None and not is_none(slots):
        for key, value in slots.pairs(tx):  # type: ignore[attr-defined]
            fresh.set_attr(tx, key.as_python_constant(), value)


def rebuild(tx: Any, vt: VariableTracker, reduced: VariableTracker, memo: DictVariable | None) -> VariableTracker:
    """What `copy._reconstruct` does with the result of `__reduce_ex__`."""
    reduced = reduced.realize()
    if reduced.python_type() is str:
        return vt
    if not isinstance(reduced, TupleVariable) or not 2 <= len(reduced.items) <= 6:
        tx.graph_break("copying", type=vt.python_type().__name__, method="__reduce_ex__")

    def inner(child: VariableTracker) -> VariableTracker:
        return child if memo is None else deep_copy(tx, child.realize(), memo)

    fn, args, state, elements, pairs = (*reduced.items[:5], *[tx.const(None)] * (5 - len(reduced.items)))[:5]
    fresh = fn.realize().call_function(tx, [inner(a) for a in args.unpack(tx)], {}).realize()
    if memo is not None:
        remember(tx, memo, vt, fresh)
    if not is_none(state):
        set_state(tx, fresh, inner(state).realize())
    if not is_none(elements):
        for item in elements.unpack(tx):
            fresh.call_method(tx, "append", [inner(item)], {})
    if not is_none(pairs):
        for pair in pairs.unpack(tx):
            key, value = pair.unpack(tx)
            fresh.set_item(tx, inner(key), inner(value))
    return fresh


def deep_copy(tx: Any, vt: VariableTracker, memo: DictVariable) -> VariableTracker:
    """`copy.deepcopy(vt, memo)`; cycles and shared parts stay cycles and shared parts."""
    if is_atomic(vt):
        return vt
    key = memo_key(vt)
    known = None if key is None else memo.entries.get(key.hash_key(tx))
    if known is not None:
        return known[1].realize()
    fresh = _deep_copy_new(tx, vt, memo).realize()
    if fresh is not vt:
        remember(tx, memo, vt, fresh)
    return fresh


def _deep_copy_new(tx: Any, vt: VariableTracker, memo: DictVariable) -> VariableTracker:
    hook = getattr(vt, "copy_object", None)
    if hook is not None:
        return hook(tx, memo)
    if has_own_method(tx, vt, "__deepcopy__"):
        return vt.call_special(tx, "__deepcopy__", [memo])
    kind = vt.python_type()
    if kind in (list, collections.deque):
        fresh_list = vt.make([])  # type: ignore[attr-defined]
        remember(tx, memo, vt, fresh_list)
        for item in vt.items:  # type: ignore[attr-defined]
            fresh_list.items.append(deep_copy(tx, item.realize(), memo))
        return fresh_list
    if kind is tuple:
        items = [deep_copy(tx, item.realize(), memo) for item in vt.items]  # type: ignore[attr-defined]
        if all(a is b.realize() for a, b in zip(items, vt.items)):  # type: ignore[attr-defined]
            return vt
        made = memo_key(vt)
        known = None if made is None else memo.entries.get(made.hash_key(tx))
        return TupleVariable(items) if known is None else known[1]
    if isinstance(vt, DictVariable) and vt.owner is None:
        fresh_dict = DictVariable() if kind is dict else type(vt)()
        if isinstance(vt, DefaultDictVariable):
            fresh_dict.default_factory = vt.default_factory  # type: ignore[attr-defined]
        remember(tx, memo, vt, fresh_dict)
        for name, value in getattr(vt, "attrs", {}).items():
            fresh_dict.attrs[name] = deep_copy(tx, value.realize(), memo)
        for k, v in vt.pairs(tx):
            key = deep_copy(tx, k.realize(), memo)
            fresh_dict.insert(key.hash_key(tx), key, deep_copy(tx, v.realize(), memo))
        return fresh_dict
    if isinstance(vt, SetVariable) and vt.owner is None:
        return SetVariable.from_items(tx, [deep_copy(tx, i.realize(), memo) for i in vt.entries.values()])
    if isinstance(vt, FrozenSetVariable):
        return vt if vt.is_python_constant() else tx.graph_break("copying", type="frozenset")
    if kind is types.MethodType:
        from .methods import BoundMethodVariable

        return BoundMethodVariable(vt.fn_vt, deep_copy(tx, vt.self_vt.realize(), memo))  # type: ignore[attr-defined]
    return copy_user_object(tx, vt, memo)
