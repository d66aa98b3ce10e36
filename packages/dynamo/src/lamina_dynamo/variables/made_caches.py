"""`functools.lru_cache` and `cache` put around a function inside the region."""

from __future__ import annotations

import functools
from typing import Any

from ..graph_break import GraphBreak
from .base import VariableTracker
from .builtin import CONSTRUCTORS
from .constant import is_none
from .methods import BoundMethodVariable
from .user_object import UserObjectVariable

CACHE_TYPE: type = type(functools.lru_cache(lambda: None))


class MadeCacheVariable(UserObjectVariable):
    """The wrapper and its cache. ``entries``: key of a call -> result, the least recently used first. ``limit``: how
    many, None for any number. A cache that holds something does not leave the region."""

    __slots__ = ("entries", "fn", "hits", "info_type", "limit", "misses", "options", "typed")

    def __init__(self, fn: VariableTracker, limit: int | None, typed: bool, info_type: Any, options: Any):
        super().__init__(None, None, CACHE_TYPE)
        self.fn = fn
        self.limit = None if limit is None else max(limit, 0)
        self.typed = typed
        self.info_type = info_type
        self.options = options
        self.entries: dict[Any, VariableTracker] = {}
        self.hits = self.misses = 0

    def describe(self) -> str:
        return f"cache of {self.fn.describe()}"

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        tx.direct_call = False  # a break inside is a break of this call: eager fills the cache
        if self.limit == 0:
            self.misses += 1
            return self.fn.call_function(tx, args, kwargs)
        key = self.key_of(tx, args, kwargs)
        found = self.entries.get(key)
        if found is not None:
            self.hits += 1
            if self.limit is not None:
                self.entries[key] = self.entries.pop(key)
            return found
        self.misses += 1
        result = self.fn.call_function(tx, args, kwargs)
        if self.limit is None or key not in self.entries:  # the call itself may have put it there
            if self.limit is not None and len(self.entries) >= self.limit:
                del self.entries[next(iter(self.entries))]
            self.entries[key] = result
        return result

    def key_of(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> Any:
        """What the real one makes of the arguments: a lone int or str is a key of its own."""
        given = [a.realize() for a in args]
        named = {k: v.realize() for k, v in kwargs.items()}
        types = tuple(v.python_type() for v in (*given, *named.values())) if self.typed else ()
        alone = not self.typed and not named and len(given) == 1 and given[0].python_type() in (int, str)
        keys = tuple(v.hash_key(tx) for v in given), tuple((k, v.hash_key(tx)) for k, v in named.items())
        return alone, keys, types

    def get_member(self, tx: Any, name: str) -> VariableTracker | None:
        return None

    def call_builtin_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        if name == "cache_clear":
            self.entries.clear()
            self.hits = self.misses = 0
            return tx.const(None)  # type: ignore[no-any-return]
        if name == "cache_info":
            limit = tx.const(self.limit)
            counts = [tx.const(self.hits), tx.const(self.misses), limit, tx.const(len(self.entries))]
            return self.info_type.call_function(tx, counts, {})  # type: ignore[no-any-return]
        if name == "__call__":
            return self.call_function(tx, list(args), kwargs)
        return super().call_builtin_method(tx, name, args, kwargs)

    def descriptor_get(self, tx: Any, obj: VariableTracker | None, cls: Any) -> VariableTracker:
        return self if obj is None else BoundMethodVariable(self, obj)

    def copy_object(self, tx: Any, memo: Any) -> VariableTracker:
        return self

    def hash_key(self, tx: Any) -> Any:
        from .keys import IdentityKey

        return IdentityKey(self)

    def children(self) -> Any:
        yield self.fn
        yield self.info_type
        yield from self.entries.values()
        yield from super().children()

    def reconstruct(self, codegen: Any) -> None:
        if self.hits or self.misses:
            raise GraphBreak("reconstruct", reason="a cache that was used inside")
        codegen.push_function(CACHE_TYPE)
        codegen(self.fn)
        for option in self.options:
            codegen(option)
        codegen(self.info_type)
        codegen.call_function(4)
        codegen.remember(self)
        codegen.output.side_effects.pending_fill.append(self)


def _make_cache(
    tx: Any, user_function: VariableTracker, maxsize: VariableTracker, typed: VariableTracker, info: VariableTracker
) -> VariableTracker:
    limit = None if is_none(maxsize) else maxsize.realize().as_python_constant()
    typed_too = bool(tx.truth(typed))
    return MadeCacheVariable(user_function.realize(), limit, typed_too, info, (maxsize, typed))


CONSTRUCTORS[CACHE_TYPE] = _make_cache
