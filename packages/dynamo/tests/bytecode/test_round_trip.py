"""Decoding and assembling again gives the same program: instructions, positions, exception table."""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import dataclasses
import dis
import enum
import inspect
import tokenize
import types
import typing

import pytest

from lamina_dynamo.bytecode import assemble, copy_instructions, decode, live_locals, versions
from lamina_dynamo.bytecode.instruction import parse_exception_table


def codes(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


def program(code):
    out = []
    for i in dis.get_instructions(code):
        if i.opname != "EXTENDED_ARG" and not i.opname.startswith("JUMP") and "JUMP" not in i.opname:
            pair = versions.PAIRED_LOCALS.get(i.opname)
            if pair is not None:  # decoded as two instructions, as is a comparison that asks for the truth
                out += zip(pair, i.argval, strict=True)
                continue
            name = versions.OPNAME[versions.SAME_PROGRAM.get(i.opcode, i.opcode)]
            out.append((name, None if isinstance(i.argval, types.CodeType) else i.argval))
            if versions.PY313 and i.opname == "COMPARE_OP" and i.arg & versions.COMPARE_ASKS_TRUTH:
                out.append(("TO_BOOL", None))
    return out


def lines(code):
    return {offset: line for start, end, line in code.co_lines() for offset in range(start, end, 2)}


def covered(table):
    return sorted((offset, *row[2:]) for row in parse_exception_table(table) for offset in range(row[0], row[1], 2))


@pytest.mark.parametrize(
    "module",
    [argparse, ast, collections, contextlib, dataclasses, dis, enum, inspect, tokenize, typing],
    ids=lambda m: m.__name__,
)
def test_round_trip(module):
    with open(module.__file__, encoding="utf-8") as f:
        whole = compile(f.read(), module.__file__, "exec")
    for code in codes(whole):
        again = assemble(code, copy_instructions(decode(code)), stacksize=code.co_stacksize)
        assert len(program(code)) == len(program(again))
        if len(code.co_code) == len(again.co_code):
            assert program(code) == program(again)
            assert lines(code) == lines(again)
            if hasattr(code, "co_positions"):
                assert list(code.co_positions()) == list(again.co_positions())
                assert covered(code.co_exceptiontable) == covered(again.co_exceptiontable)


def test_live_locals():
    def fn(a, b):
        c = a + 1
        for _ in range(3):
            b = b * c
        return b

    code = fn.__code__
    instructions = decode(code)
    assert live_locals(code, 0) == {"a", "b"}
    loop = next(i for i in instructions if i.opname == "FOR_ITER")
    assert live_locals(code, loop.index) == {"b", "c"}
    assert live_locals(code, len(instructions) - 1) == set()
