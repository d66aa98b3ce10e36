"""What differs between CPython versions, one table row a fact.

Every other module of this package writes bytecode through the names defined here; a new CPython version is a new set
of rows.
"""

from __future__ import annotations

import dis
import opcode
import sys

VERSION = sys.version_info[:2]
PY310 = VERSION == (3, 10)
PY311 = VERSION >= (3, 11)
PY312 = VERSION >= (3, 12)
PY313 = VERSION >= (3, 13)

OPMAP: dict[str, int] = dict(dis.opmap)
OPNAME: list[str] = list(dis.opname)
EXTENDED_ARG: int = OPMAP["EXTENDED_ARG"]
HAVE_ARGUMENT: int = dis.HAVE_ARGUMENT


def _cache_counts() -> list[int]:
    table = getattr(opcode, "_inline_cache_entries", None)
    counts = [0] * 512
    if isinstance(table, dict):
        for name, count in table.items():
            if name in OPMAP:
                counts[OPMAP[name]] = count
    elif table is not None:
        for code, count in enumerate(table):
            counts[code] = count
    return counts


CACHES: list[int] = _cache_counts()
"""Opcode -> number of inline cache units that follow the instruction (all 0 on 3.10)."""

SAME_PROGRAM: dict[int, int] = {}
"""Opcodes that are read as others that do the same. 3.10's method calls push a NULL that no instruction can push."""
if PY310:
    SAME_PROGRAM[OPMAP["LOAD_METHOD"]] = OPMAP["LOAD_ATTR"]
    SAME_PROGRAM[OPMAP["CALL_METHOD"]] = OPMAP["CALL_FUNCTION"]

JUMPS: frozenset[int] = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
ABSOLUTE_JUMPS: frozenset[int] = frozenset(dis.hasjabs)
BACKWARD: frozenset[int] = frozenset(code for name, code in OPMAP.items() if "BACKWARD" in name and code in JUMPS)
HAS_CONST: frozenset[int] = frozenset(dis.hasconst)
HAS_NAME: frozenset[int] = frozenset(dis.hasname)
HAS_LOCAL: frozenset[int] = frozenset(dis.haslocal)
HAS_FREE: frozenset[int] = frozenset(dis.hasfree)
COMPARE: frozenset[int] = frozenset(dis.hascompare)

NAME_SHIFT: dict[str, int] = {}
"""Opcodes whose argument is a name index with flag bits below it."""
if PY311:
    NAME_SHIFT["LOAD_GLOBAL"] = 1
if PY312:
    NAME_SHIFT["LOAD_ATTR"] = 1
    NAME_SHIFT["LOAD_SUPER_ATTR"] = 2

COMPARE_SHIFT = 5 if PY313 else 4 if PY312 else 0
COMPARE_ASKS_TRUTH = 16
"""Flag of 3.13's comparisons: the result is turned into a bool."""
PAIRED_LOCALS: dict[str, tuple[str, str]] = {
    f"{one}_{two}": (one, two)
    for one, two in [("LOAD_FAST", "LOAD_FAST"), ("STORE_FAST", "LOAD_FAST"), ("STORE_FAST", "STORE_FAST")]
    if f"{one}_{two}" in OPMAP
}
"""Superinstructions of 3.13, two local indices in one argument, and the two instructions that they are."""

# A jump that has a forward and a backward opcode: (name when forward, name when backward).
DIRECTIONS: dict[str, tuple[str, str]] = {}
if PY311:
    for _pair in [
        ("JUMP_FORWARD", "JUMP_BACKWARD"),
        ("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE"),
        ("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE"),
        ("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE"),
        ("POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE"),
    ]:
        if _pair[0] in OPMAP and _pair[1] in OPMAP:
            DIRECTIONS[_pair[0]] = DIRECTIONS[_pair[1]] = _pair
    DIRECTIONS["JUMP_BACKWARD_NO_INTERRUPT"] = ("JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT")

TERMINATORS: frozenset[str] = frozenset(
    {
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "JUMP_ABSOLUTE",
    }
)
"""Instructions after which the next one is not reached by falling through."""

UNCONDITIONAL_JUMP = "JUMP_FORWARD"

# Words of the symbolic operators, by argument of BINARY_OP (3.11+).
BINARY_OPERATORS = [
    "add",
    "and_",
    "floordiv",
    "lshift",
    "matmul",
    "mul",
    "mod",
    "or_",
    "pow",
    "rshift",
    "sub",
    "truediv",
    "xor",
]
