"""From guards to the program in C.

`build` fills in expected values, groups the guards by path (a path that several guards share is walked once), orders
them so that what is cheap
and most likely to fail comes as early as its assumptions allow, and hands the tree to `GuardProgram`. What the C
side has no opcode for
runs as a Python predicate (`PYTHON`), so each kind always has a meaning.
"""

from __future__ import annotations

import ast
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _eval_frame, _torch
from ..roots import LocalSource
from ..source import Scope, Source, TypeSource
from .kinds import KINDS, Guard, ShapeExpr, TensorExpect, Values, describe, evaluate_source
from .pattern import GuardPattern, GuardTable, PatternGuards

__all__ = ["BuiltGuards", "build", "complete", "guard_key"]

_ACCESS: dict[str, int] = _eval_frame.ACCESSES
_CHECK: dict[str, int] = _eval_frame.CHECKS


def _bind() -> tuple[bool, bool, bool]:
    """Let the extension find libtorch; check each fast reading against the slow one. Returns (tensors, storages,
    state).
    """
    sample = torch.zeros(2, 3, requires_grad=True)
    tensors, storages, state = _eval_frame.bind_torch(
        _torch.library_folder(), sample, _torch.dispatch_keys(sample), sample.untyped_storage()._cdata
    )
    if tensors:
        for probe in (
            sample,
            torch.zeros(3, 0, 5, dtype=torch.int64),
            torch.zeros(4, 4, dtype=torch.float64).t()[1:, ::2],
            torch.zeros((), dtype=torch.bool),
            torch.zeros(1, 2, 3, 1, 2),
            torch.zeros(2, 1, 2, 3, 1, 2).transpose(0, 3),
        ):
            expected = (
                _torch.dispatch_keys(probe),
                _torch.dtype_code(probe.dtype),
                int(probe.requires_grad),
                tuple(probe.shape),
                probe.stride(),
            )
            fast = _eval_frame.probe_tensor(probe)
            if fast[:5] != expected or (storages and fast[5] != probe.untyped_storage()._cdata):
                return False, False, bool(state)
    return bool(tensors), bool(storages), bool(state)


FAST_TENSORS, FAST_STORAGES, FAST_STATE = _bind()


class BuiltGuards:
    """A program with what is needed to talk about it. Keeps nothing of the user's objects alive."""

    __slots__ = ("arg_names", "guards", "program")

    def __init__(self, program: Any, guards: Sequence[Guard], arg_names: tuple[str, ...]) -> None:
        self.program = program
        self.guards = guards
        self.arg_names = arg_names

    def check(self, scope: Scope) -> int:
        """Index of the first guard that fails, or -1. (The hook runs the program itself; this is for tests and
        tools.)
        """
        args = tuple(scope.f_locals.get(name) for name in self.arg_names)
        return self.program.check(args, scope.closure or None, scope.f_globals, scope.f_builtins)  # type: ignore[no-any-return]


def arg_names_of(code: types.CodeType) -> tuple[str, ...]:
    """Names of the arguments, ``*args`` and ``**kwargs`` included, in the order of the frame's slots."""
    n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.co_varnames[:n]


def complete(guard: Guard, scope: Scope, values: Values | None = None) -> Guard:
    """The guard with its expected value filled in and in canonical form (relations as tuples of sources). `values`:
    what sources were found to be, kept from guard to guard."""
    kind, source, value = guard.kind, guard.source, guard.value
    if kind in ("SAME_OBJECT", "NOT_SAME") and isinstance(value, Source) and isinstance(source, Source):
        source, value = (source, value), None
    row = KINDS[kind]
    if row.relation and isinstance(source, Source):
        source = (source,)
    if value is None and kind not in ("NONE",):
        value = row.snapshot(evaluate_source(source, scope, values), scope)
    elif kind == "TENSOR" and isinstance(value, torch.Tensor):
        value = TensorExpect.of(value)
    elif kind == "DICT_KEYS":
        value = tuple(value)
    elif kind == "SET_CONTENTS":
        value = frozenset(value)
    elif kind == "FUNCTION_CODE":
        value = (
            row.snapshot(value, scope)
            if isinstance(value, types.FunctionType)
            else value
            if isinstance(value, tuple)
            else row.snapshot(evaluate_source(source, scope), scope)
        )
    elif kind == "TYPE" and not isinstance(value, type):
        value = type(value)
    return Guard(source, kind, value, guard.stack)


class _Node:
    __slots__ = ("access", "checks", "children", "first_guard", "keep", "source")

    def __init__(self, source: Source, first_guard: int, access: Any = None) -> None:
        self.source = source
        self.children: list[_Node] = []
        self.checks: list[tuple[int, int, Any]] = []
        self.keep = -1
        self.first_guard = first_guard
        self.access = access  # None: by the source, once it is known which sources are tensors


def build(
    guards: Sequence[Guard | PatternGuards], code: types.CodeType, scope: Scope, given: Sequence[Source] = ()
) -> BuiltGuards:
    """The program for a frame of ``code``. ``scope`` is the frame's state before its first instruction; ``given``:
    values that the program hands to the compiled code, all of them guarded. Raises InternalError-worthy exceptions
    (KeyError for an unknown kind) to its caller."""
    arg_names = arg_names_of(code)
    layout = _Layout(arg_names, code.co_freevars)
    roots: list[_Node] = []
    index: dict[Source, _Node] = {}
    relations: list[tuple[int, int, Any, tuple[int, ...]]] = []
    registers = 0
    done = GuardTable()
    tensors: dict[Source, bool] = {}

    def node_of(source: Source, number: int) -> _Node:
        found = index.get(source)
        if found is None:
            siblings = roots if source.base is None else node_of(source.base, number).children
            found = index[source] = _Node(source, number)
            siblings.append(found)
        return found

    classes = _OneClass()
    values: Values = {}
    seen: set[Any] = set()
    patterns: dict[int, _PatternRows] = {}
    for original in guards:
        if isinstance(original, PatternGuards):
            pattern = original.pattern
            rows = patterns.get(id(pattern))
            if rows is None:
                rows = patterns[id(pattern)] = _PatternRows(pattern, layout, scope, values)
            first = len(done)
            made = rows.attach(node_of(original.source, first), first)
            done.append_pattern(original.source, pattern.top, rows.guards)
            for source, k in original.named.items():
                index[source] = made[k]
            continue
        guard = classes.shared(complete(original, scope, values))
        key = guard_key(guard)
        if key is not None:
            if key in seen:
                continue
            seen.add(key)
        number = len(done)
        row = KINDS[guard.kind]
        if guard.source is None or row.relation:
            sources = guard.source if isinstance(guard.source, tuple) else ()
            slots = []
            for source in sources:
                node = node_of(source, number)
                if node.keep < 0:
                    node.keep = registers
                    registers += 1
                slots.append(node.keep)
            op, operand = _relation(guard, [evaluate_source(s, scope, values) for s in sources], tensors)
            relations.append((op, number, operand, tuple(slots)))
        else:
            assert isinstance(guard.source, Source)
            node = node_of(guard.source, number)
            op, operand = _check(guard, evaluate_source(guard.source, scope, values))
            if op == _CHECK["TENSOR"]:
                tensors[guard.source] = True
            node.checks.append((op, number, operand))
        done.append(_without_objects(guard))

    gives = []
    for source in given:
        node = node_of(classes.path(source), 0)
        if node.keep < 0:
            node.keep = registers
            registers += 1
        gives.append(node.keep)

    # Global state is a handful of reads, and everything depends on it: it is checked first of the relations but
    # after the tree, which
    # rejects another object in a nanosecond.
    relations.sort(key=lambda r: r[0] != _CHECK["GLOBAL_STATE"])
    nodes: list[tuple[Any, ...]] = []
    checks: list[tuple[Any, ...]] = []

    def lay_out(node: _Node, parent: int) -> None:
        position = len(nodes)
        op, item, second, number = node.access or layout.access(node.source, tensors)
        nodes.append((op, parent, item, second, number, node.keep, node.first_guard))
        absent = any(c[0] == _CHECK["ABSENT"] for c in node.checks)
        for check_op, guard_number, operand in node.checks[:1] if absent else node.checks:
            checks.append((position, check_op, guard_number, operand))
        for child in node.children:
            lay_out(child, position)

    for root in roots:
        lay_out(root, -1)
    return BuiltGuards(_eval_frame.GuardProgram(nodes, checks, relations, registers, tuple(gives)), done, arg_names)


class _PatternRows:
    """What of a pattern is the same for every object that it is laid out for."""

    def __init__(self, pattern: GuardPattern, layout: _Layout, scope: Scope, values: Values) -> None:
        self.guards = [_without_objects(guard) for _, guard in pattern.checks]
        checks: list[list[tuple[int, int, Any]]] = [[] for _ in range(len(pattern.steps) + 1)]
        first = [len(pattern.checks)] * len(checks)
        for number, (k, guard) in enumerate(pattern.checks):
            assert isinstance(guard.source, Source)
            op, operand = _check(guard, evaluate_source(guard.source, scope, values))
            checks[k].append((op, number, operand))
            first[k] = min(first[k], number)
        self.top = checks[0]
        # (base, source, how to get there, number of the first guard, checks); a tensor's numbers are read the slow way:
        # nothing says here that it is one
        self.rows: list[tuple[int, Source, Any, int, list[tuple[int, int, Any]]]] = []
        for k in range(len(pattern.steps), 0, -1):  # a step fails as the first guard that needs it
            base = pattern.steps[k - 1][0]
            first[base] = min(first[base], first[k])
        for k, (base, source) in enumerate(pattern.steps, 1):
            number = min(first[k], len(pattern.checks) - 1)
            self.rows.append((base, source, layout.access(source, {}), number, checks[k]))

    def attach(self, top: _Node, start: int) -> list[_Node]:
        """Nodes below ``top`` by position; its guards have the numbers from ``start`` on."""
        known = top.checks
        for op, number, operand in self.top:
            if not any(op == a and (operand is b or type(operand) is type(b) and operand == b) for a, _, b in known):
                known.append((op, start + number, operand))
        nodes = [top]
        for base, source, access, first, checks in self.rows:
            node = _Node(source, start + first, access)
            node.checks = [(op, start + number, operand) for op, number, operand in checks]
            nodes[base].children.append(node)
            nodes.append(node)
        return nodes


class _OneClass:
    """Guards about the class of many objects, made once.

    While the TYPE guards of two objects hold with one class, ``type(a)`` and ``type(b)`` are the same object: what
    is assumed about the class
    is checked on the first path that leads to it. The TYPE guard of each path comes before, as it was recorded before.
    """

    def __init__(self) -> None:
        self.type_of: dict[Source, Any] = {}
        self.first: dict[Any, Source] = {}
        self.moved: dict[Source, Source] = {}

    def shared(self, guard: Guard) -> Guard:
        source = guard.source
        if isinstance(source, tuple):
            return Guard(tuple(self.path(s) for s in source), guard.kind, guard.value, guard.stack)
        if source is None:
            return guard
        if guard.kind == "TYPE" and source not in self.type_of:
            self.type_of[source] = guard.value
        moved = self.path(source)
        return guard if moved is source else Guard(moved, guard.kind, guard.value, guard.stack)

    def path(self, source: Source) -> Source:
        base = source.base
        if base is None:
            return source
        found = self.moved.get(source)
        if found is not None:
            return found
        if isinstance(source, TypeSource) and base in self.type_of:
            found = self.first.setdefault(self.type_of[base], source)
        else:
            moved = self.path(base)
            found = source if moved is base else source.with_base(moved)
        self.moved[source] = found
        return found


def guard_key(guard: Guard) -> Any:
    """To find guards said twice; None where values do not compare plainly."""
    value = guard.value
    if (
        isinstance(value, (str, type, types.CodeType, types.FunctionType, types.BuiltinFunctionType, types.ModuleType))
        or value is None
    ):
        return (guard.source, guard.kind, id(value) if not isinstance(value, str) else value)
    if guard.kind == "FUNCTION_CODE" or (guard.kind == "CONSTANT" and type(value) in (int, bool)):
        return (guard.source, guard.kind, type(value), value)
    return None


class _Layout:
    """Where the roots of paths are in a frame."""

    def __init__(self, arg_names: tuple[str, ...], free_names: tuple[str, ...]) -> None:
        self.args = {name: i for i, name in enumerate(arg_names)}
        self.free = {name: i for i, name in enumerate(free_names)}

    def access(self, source: Source, tensors: dict[Source, bool]) -> tuple[int, Any, Any, int]:
        """(opcode, object, second object, number) of one access step."""
        op, operand = source.access_op, source.operand()
        if isinstance(source, LocalSource):
            if operand in self.args:
                return _ACCESS["LOCAL"], None, None, self.args[operand]
            return _ACCESS["FREE"], None, None, self.free[operand]
        if op == "FRAME_CELL":
            return _ACCESS[op], None, None, self.free[operand] if isinstance(operand, str) else operand
        if op in ("DICT_KEY", "DICT_VALUE", "FUNC_CELL", "DEFAULT"):
            return _ACCESS[op], None, None, operand
        if op == "MODULE_MEMBER":
            return _ACCESS[op], operand[1], operand[0], 0
        if op == "ITEM":
            position = type(operand) is int and -(1 << 62) < operand < (1 << 62)
            return _ACCESS[op], operand, None if position else True, operand if position else 0
        if op == "TENSOR_META":
            what, dim = operand
            fast = FAST_TENSORS and source.base is not None and tensors.get(source.base, False)
            return (
                _ACCESS[op],
                _MetaReader(source),
                None if fast else True,
                ({"size": 0, "stride": 1, "storage_offset": 2}[what] << 32) | dim,
            )
        if op == "PYTHON":
            return _ACCESS[op], operand[0], tuple(operand[1]), 0
        return _ACCESS[op], operand, None, 0


class _MetaReader:
    """The slow form of a tensor's size or stride."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __call__(self, tensor: Any) -> int:
        return int(self.source.step(tensor, None))


def _check(guard: Guard, value: Any) -> tuple[int, Any]:
    """Opcode and operand of a guard on one value; ``value`` is the live one."""
    kind, expected = guard.kind, guard.value
    if kind == "TENSOR":
        assert isinstance(expected, TensorExpect)
        if FAST_TENSORS and _torch.is_plain_storage(value):
            device = -1 if expected.device.index is None or expected.device.type == "cpu" else expected.device.index
            sizes = None if expected.sizes is None else tuple(-1 if s is None else s for s in expected.sizes)
            strides = (
                None
                if expected.strides is None or sizes is None
                else tuple(-1 if s is None else s for s in expected.strides)
            )
            return _CHECK[kind], (
                expected.python_type,
                expected.keys,
                _torch.dtype_code(expected.dtype),
                device,
                int(expected.requires_grad),
                sizes,
                strides,
            )
        return _python(guard)
    if kind == "DICT_KEYS":
        # An OrderedDict keeps its order apart from the hash table that C iterates.
        return _CHECK[kind], (expected, isinstance(value, OrderedDict), _Predicate(guard))
    if kind == "FUNCTION_CODE":
        code, defaults, keyword = expected
        return _CHECK[kind], (code, defaults, keyword)
    if kind == "MODULE_HOOKS":
        return (_CHECK["NO_HOOKS"], None) if not any(expected) else _python(guard)
    if kind in ("SET_CONTENTS", "TYPE_VERSION"):
        return _python(guard)
    if kind == "CONSTANT":
        return _CHECK[kind], expected
    if kind == "PYTHON":
        return _CHECK[kind], expected
    if kind == "HAS_ATTR" or kind == "NO_ATTR" or kind == "NO_INSTANCE_ATTR" or kind == "NO_CLASS_ATTR":
        return _CHECK[kind], expected
    return _CHECK[kind], expected


def _python(guard: Guard) -> tuple[int, Any]:
    return _CHECK["PYTHON"], _Predicate(guard)


class _Predicate:
    """A guard's Python check as a function of the value."""

    __slots__ = ("check", "expected")

    def __init__(self, guard: Guard) -> None:
        self.check = KINDS[guard.kind].check
        self.expected = guard.value

    def __call__(self, value: Any) -> bool:
        return self.check(value, self.expected)


class _StatePredicate:
    """Global state as Python sees it: the whole, or the stack of function modes where C has compared the rest."""

    __slots__ = ("expected",)

    def __init__(self, expected: Any) -> None:
        self.expected = expected

    def __call__(self) -> bool:
        if FAST_STATE:
            return bool(_torch.function_modes() == self.expected["torch function modes"])
        return bool(_torch.global_state() == self.expected)


def _relation(guard: Guard, values: list[Any], tensors: dict[Source, bool]) -> tuple[int, Any]:
    kind, expected = guard.kind, guard.value
    if kind == "GLOBAL_STATE":
        return _CHECK[kind], _StatePredicate(expected)
    if kind == "NO_OVERLAP":
        sources = guard.source
        assert isinstance(sources, tuple)
        if FAST_STORAGES and all(tensors.get(s, False) for s in sources):
            return _CHECK[kind], tuple(number for pair in expected for number in pair)
        return _CHECK["PYTHON_RELATION"], _Predicate(guard)
    if kind == "SHAPE_EXPR":
        program = compile_shape(expected)
        if program is not None and len(values) <= 60 and all(type(v) is int for v in values):
            return _CHECK[kind], program
        return _CHECK["PYTHON_RELATION"], _Predicate(guard)
    return _CHECK[kind], expected


_SHAPE_OPS = {
    name: i
    for i, name in enumerate(
        "CONST LOAD ADD SUB MUL FLOORDIV MOD POW MIN MAX ABS NEG EQ NE LT LE GT GE AND OR NOT".split()
    )
}
_BINARY: dict[type, str] = {
    ast.Add: "ADD",
    ast.Sub: "SUB",
    ast.Mult: "MUL",
    ast.FloorDiv: "FLOORDIV",
    ast.Mod: "MOD",
    ast.Pow: "POW",
}
_COMPARE: dict[type, str] = {ast.Eq: "EQ", ast.NotEq: "NE", ast.Lt: "LT", ast.LtE: "LE", ast.Gt: "GT", ast.GtE: "GE"}


def compile_shape(expr: ShapeExpr) -> tuple[tuple[int, int], ...] | None:
    """Code of the integer stack machine, or None if the expression needs more than integers or is too deep."""
    positions = {name: i for i, name in enumerate(expr.names)}
    code: list[tuple[int, int]] = []
    depth = 0

    def push(op: str, value: int = 0) -> None:
        nonlocal depth
        depth += 1
        if depth > 60 or not -(1 << 63) <= value < (1 << 63):
            raise _NotInteger
        code.append((_SHAPE_OPS[op], value))

    def apply(op: str) -> None:
        nonlocal depth
        depth -= 1
        code.append((_SHAPE_OPS[op], 0))

    def walk(node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            push("CONST", int(node.value))  # type: ignore[call-overload]
        elif isinstance(node, ast.Name) and node.id in positions:
            push("LOAD", positions[node.id])
        elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            walk(node.left)
            walk(node.right)
            apply(_BINARY[type(node.op)])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            walk(node.operand)
            code.append((_SHAPE_OPS["NEG" if isinstance(node.op, ast.USub) else "NOT"], 0))
        elif isinstance(node, ast.BoolOp):
            walk(node.values[0])
            for value in node.values[1:]:
                walk(value)
                apply("AND" if isinstance(node.op, ast.And) else "OR")
        elif isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            left = node.left
            for i, (op, right) in enumerate(zip(node.ops, node.comparators)):
                walk(left)
                walk(right)
                apply(_COMPARE[type(op)])
                if i:
                    apply("AND")
                left = right
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("min", "max", "abs")
            and not node.keywords
        ):
            walk(node.args[0])
            if node.func.id == "abs":
                code.append((_SHAPE_OPS["ABS"], 0))
            for value in node.args[1:]:
                walk(value)
                apply(node.func.id.upper())
        else:
            raise _NotInteger

    try:
        walk(ast.parse(expr.expr, mode="eval").body)
    except _NotInteger:
        return None
    return tuple(code)


class _NotInteger(Exception):
    """The expression is not one of the stack machine's."""


_PLAIN = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    tuple,
    frozenset,
    torch.dtype,
    torch.device,
    torch.Size,
    TensorExpect,
    ShapeExpr,
    dict,
)
_HELD: dict[str, Callable[[Any], Any]] = {
    "CLASS_ATTR": lambda v: (v[0], describe(v[1]) if len(v) > 1 else "nothing"),
    "FUNCTION_CODE": lambda v: (weakref.ref(v[0]), *v[1:]),
}


def _without_objects(guard: Guard) -> Guard:
    """The guard for later explanations: objects of the program become weak references, or text."""
    value = guard.value
    if guard.kind in _HELD:
        value = _HELD[guard.kind](value)
    elif isinstance(value, tuple):
        value = (
            value
            if all(isinstance(v, _PLAIN) for v in value)
            else tuple(v if isinstance(v, _PLAIN) else describe(v) for v in value)
        )
    elif not isinstance(value, _PLAIN):
        try:
            value = weakref.ref(value)
        except TypeError:
            value = Described(describe(value))
    return Guard(guard.source, guard.kind, value, guard.stack)


class Described(str):
    """Text that stands for an object."""

    __slots__ = ()
