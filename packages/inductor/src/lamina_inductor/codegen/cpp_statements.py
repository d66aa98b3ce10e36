"""The C++ statements of single ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..index import Expr, coefficient, substitute, symbol, to_expr
from ..ops import Op
from . import cpp_places as places
from .cpp_index import Value, c_name, marked_index
from .cpp_ops import ELEMENT, LANE, TEXT, truth, vector_type
from .kernel import BufferArg

if TYPE_CHECKING:
    from .kernel import KernelSpec, LoopVar


class Statements:
    """Writes ops, in the scope that the loops around them have opened. `KernelWriter` writes these loops."""

    spec: KernelSpec
    mode: str
    lanes: int
    values: dict[Op, Value]
    symbols: dict[str, Op]  # indirect symbol -> the op that makes it
    deps: dict[Op, frozenset[str]]
    checks: dict[Op, int]
    tiles: dict[Op, str]
    tile_at: str
    ahead: dict[Op, Expr]
    fetch: str
    narrow: LoopVar | None
    uniform: frozenset[Op]
    one_number: bool  # what is written now is one number, not a vector

    def put(self, text: str) -> None:
        """Adds a line."""
        raise NotImplementedError

    def _items(self, op: Op) -> dict[int, list[Op]]:
        raise NotImplementedError

    def _text(self, op: Op) -> str:
        return self.values[op].text

    def _names(self, base: str | None, lane: str | None, e: Expr) -> dict[str, str]:
        """C names of the symbols in `e`; with `lane`, those that differ between lanes are taken for that lane."""
        names: dict[str, str] = {}
        for s in e.syms:
            if s in self.symbols:
                made = self.symbols[s]
                names[s] = f"i64({self._text(made)}[{0 if made in self.uniform else lane or 0}])"
            elif s == base and lane is not None:
                names[s] = f"({s} + {lane})"
        return names

    def _stride(self, e: Expr, base: str | None, *, lanes_only: bool = False) -> Expr | None:
        """Stride of `e` along a loop; with `lanes_only`, from lane to lane of a vector that begins at a multiple of
        N."""
        if base is None:
            return to_expr(0)
        for s in e.syms:
            if s in self.symbols and base in self.deps[self.symbols[s]]:
                return None
        found = coefficient(e, base)
        if found is None and lanes_only and self.lanes > 1 and self.narrow is None:
            start, lane = symbol("start_"), symbol("lane_", self.lanes)
            found = coefficient(substitute(e, {base: start * self.lanes + lane}), "lane_")
        return found

    def _emit(
        self, op: Op, *, lanes: str, base: str | None, accs: dict[Op, str], leave: str, full_push: bool = False
    ) -> None:
        if op in self.values and op.name not in ("store", "check"):
            return
        name = f"v{len(self.values)}" if op.name not in ("store", "check") else ""
        if op in self.uniform and not self.one_number:
            self.one_number = True
            self._emit(op, lanes="all_lanes{}", base=None, accs=accs, leave=leave, full_push=full_push)
            self.one_number = False
            return
        handler = getattr(self, "_emit_" + op.name, None)
        if handler is not None:
            handler(op, name, lanes, base, accs, leave, full_push)
            return
        args = [self._text(a) if isinstance(a, Op) else a for a in op.args]
        text = TEXT[op.name](op, *[a for a in args if isinstance(a, str)])
        self.put(f"const {vector_type(op.dtype)} {name} = {text};")
        self.values[op] = Value(name, "lanes")

    def _emit_constant(self, op: Op, name: str, *_: object) -> None:
        self.put(f"const {vector_type(op.dtype)} {name} = {TEXT['constant'](op)};")
        self.values[op] = Value(name, "lanes")

    def _emit_index_expr(self, op: Op, name: str, lanes: str, base: str | None, *_: object) -> None:
        e, v = op.args[0], vector_type(op.dtype)
        stride = self._stride(e, base, lanes_only=True)
        if op.dtype is torch.bool or (stride is None):
            text = f"fill_each<{v}>([&](int k) {{ return {marked_index(e, self._names(base, 'k', e))}; }})"
        else:
            text = f"splat<{v}>({LANE[op.dtype]}({marked_index(e, self._names(base, None, e))}))"
            if stride != 0:
                step = marked_index(stride, self._names(base, None, stride))
                text += f" + iota<{v}>()" + ("" if stride == 1 else f" * {LANE[op.dtype]}({step})")
        self.put(f"const {v} {name} = {text};")
        self.values[op] = Value(name, "lanes")

    def _emit_indirect(self, op: Op, name: str, *_: object) -> None:
        self.values[op] = Value(self._text(op.args[0]), "lanes")

    def _emit_item(self, op: Op, name: str, *_: object) -> None:
        """Items are made together with their op: those of a scan right there, those of a reduction behind its loops."""

    def _scratch_access(self, buffer: BufferArg, e: Expr) -> str | None:
        """In column mode scratch elements are whole vectors."""
        if buffer.role != "scratch" or self.mode == "row":
            return None
        return f"{c_name(buffer.name)} + ({marked_index(e, self._names(None, None, e))}) * N"

    def _tile_place(self, op: Op) -> str:
        return f"{self.tiles[op]} + {self.tile_at}"

    def _emit_load(self, op: Op, name: str, lanes: str, base: str | None, *_: object) -> None:
        buffer, e, mask = self.spec.buffer(op.args[0]), op.args[1], op.args[2]
        v, t, p = vector_type(op.dtype), ELEMENT[buffer.dtype], c_name(op.args[0])
        whole = self._scratch_access(buffer, e)
        stride = self._stride(e, base, lanes_only=True)
        here = marked_index(e, self._names(base, None, e))
        each = f"[&](int k) {{ return {p} + {marked_index(e, self._names(base, 'k', e))}; }}"
        if whole is not None:
            text = f"load<{v}>({whole}, all_lanes{{}})"
        elif op in self.tiles:
            text = f"load<{v}>({self._tile_place(op)}, {lanes})"
        elif mask is not None:
            m = self._text(mask)
            if stride == 1:
                text = f"load_masked<{v}>({p} + {here}, {m}, {lanes})"
            else:
                text = f"load_each_masked<{v}, {t}>({each}, {m}, {lanes})"
        elif stride == 1:
            text = f"load<{v}>({p} + {here}, {lanes})"
        elif stride is not None and stride == 0:
            text = f"load_splat<{v}>({p} + {here})"
        elif stride is not None:
            text = f"load_strided<{v}>({p} + {here}, {marked_index(stride, self._names(base, None, stride))}, {lanes})"
        else:
            text = places.text_of_load(self, op, lanes, base) or f"load_each<{v}, {t}>({each}, {lanes})"
        self.put(f"const {v} {name} = {text};")
        if op in self.ahead:
            self._fetch(op, base)
        self.values[op] = Value(name, "lanes")

    def _fetch(self, op: Op, base: str | None) -> None:
        place = marked_index(op.args[1], self._names(base, None, op.args[1]))
        self.put(f"{self.fetch}({c_name(op.args[0])} + {place} + {marked_index(self.ahead[op], {})});")

    def _emit_store(self, op: Op, name: str, lanes: str, base: str | None, *_: object) -> None:
        buffer_name, e, value, update, mask = op.args
        buffer = self.spec.buffer(buffer_name)
        here = self.values[value].kind == "lanes"  # of this phase, and so is what it rounds
        if here and value.name == "round_to" and value.args[1] is buffer.dtype and update is None:
            value = value.args[0]  # the store rounds
        plain = update is None and mask is None and op not in self.tiles
        plain = plain and (base is None or self._stride(e, base, lanes_only=True) == 1)
        coarse = "_coarse" if here and value.name == "round_coarse" and plain else ""
        if coarse:
            value = value.args[0]
        dtype = value.dtype
        v, t, p, x = vector_type(dtype), ELEMENT[buffer.dtype], c_name(buffer_name), self._text(value)
        if buffer.dtype is torch.bool:
            x = truth(value, x)
            v = "mask<N>"
        whole = self._scratch_access(buffer, e)
        stride = self._stride(e, base, lanes_only=True)
        here = marked_index(e, self._names(base, None, e))
        each = f"[&](int k) {{ return {p} + {marked_index(e, self._names(base, 'k', e))}; }}"
        if base is None and lanes != "1" and self.lanes > 1 and whole is None:
            lanes = "1"
        m = self._text(mask) if mask is not None else None
        if whole is not None:
            self.put(f"store<{v}>({whole}, {x}, all_lanes{{}});")
        elif op in self.tiles:
            self.put(f"store<{v}>({self._tile_place(op)}, {x}, {lanes});")
        elif update is not None:
            join = {"add": "a + b", "mul": "a * b", "max": "maximum(a, b)", "min": "minimum(a, b)"}[update]
            if dtype is torch.bool:
                join = {"add": "a | b", "max": "a | b"}.get(update, "a & b")
            if stride == 1 and m is None:
                self.put(
                    f"{{ const {v} a = load<{v}>({p} + {here}, {lanes}), b = {x}; store<{v}>({p} + {here}, {join}, {lanes}); }}"  # noqa: E501
                )
            else:
                on = m or "~mask<N>{}"
                self.put(f"update_each<{v}, {t}>({each}, {on}, {x}, [](auto a, auto b) {{ return {join}; }}, {lanes});")
        elif m is not None and stride == 1:
            self.put(f"store_masked<{v}>({p} + {here}, {m}, {x}, {lanes});")
        elif m is not None:
            self.put(f"store_each_masked<{v}, {t}>({each}, {m}, {x}, {lanes});")
        elif stride == 1 or base is None:
            self.put(f"store{coarse}<{v}>({p} + {here}, {x}, {lanes});")
            if op in self.ahead:
                self._fetch(op, base)
        elif stride is not None and stride != 0:
            self.put(
                f"store_strided<{v}>({p} + {here}, {marked_index(stride, self._names(base, None, stride))}, {x}, {lanes});"  # noqa: E501
            )
        else:
            self.put(f"store_each<{v}, {t}>({each}, {x}, {lanes});")

    def _emit_check(
        self, op: Op, name: str, lanes: str, base: str | None, accs: object, leave: str, *_: object
    ) -> None:
        condition, mask = op.args[0], op.args[3] if len(op.args) > 3 else None
        bad = f"~{truth(condition, self._text(condition))}"
        if mask is not None:
            bad = f"({bad}) & {truth(mask, self._text(mask))}"
        self.put(
            f"if (any_lane({bad}, {lanes})) {{ __atomic_store_n(&err, {self.checks[op]}, __ATOMIC_RELAXED); {leave} }}"
        )

    def _emit_reduction(
        self, op: Op, name: str, lanes: str, base: str | None, accs: dict[Op, str], leave: str, full: bool
    ) -> None:
        value, kind = op.args[0], op.args[1]
        x = self._text(value)
        if kind in ("any", "all") or op.dtype is torch.bool:
            x = truth(value, x)
        elif value.dtype is not op.dtype and kind in ("sum", "prod", "max", "min"):
            x = (
                f"from_mask<{vector_type(op.dtype)}>({x})"
                if value.dtype is torch.bool
                else f"cvt<{vector_type(op.dtype)}>({x})"
            )
        c, u = ("all_lanes{}", "slot<0>{}") if full else (lanes, "u")
        if kind in ("argmax", "argmin", "max_with_index", "min_with_index"):
            self.put(f"{accs[op]}.push({u}, {x}, {self._text(op.args[2])}, {c});")
        else:
            self.put(f"{accs[op]}.push({u}, {x}, {c});")

    def _emit_scan(self, op: Op, name: str, lanes: str, base: str | None, accs: dict[Op, str], *_: object) -> None:
        kind, x, a = op.args[1], self._text(op.args[0]), accs[op]
        v = vector_type(op.dtype)
        if kind in ("cummax", "cummin"):
            self.put(f"{a}.push({x}, {self._text(op.args[2])});")
            results = (f"{a}.best", f"{a}.where")
            for k, its in self._items(op).items():
                for n, it in enumerate(its):
                    t = vector_type(it.dtype)
                    self.put(f"const {t} {name}_{k}_{n} = cvt<{t}>({results[k]});")
                    self.values[it] = Value(f"{name}_{k}_{n}", "lanes")
            self.values[op] = Value(f"{a}.best", "lanes")
            return
        text = f"cvt<{v}>({x})" if op.args[0].dtype is not torch.bool else f"from_mask<{v}>({x})"
        self.put(f"const {v} {name} = {a}.push({text});")
        self.values[op] = Value(name, "lanes")


__all__ = ["Statements"]
