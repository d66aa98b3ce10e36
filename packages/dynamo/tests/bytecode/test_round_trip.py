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

from lamina_dynamo.bytecode import assemble, copy_instructions, decode, live_locals
from lamina_dynamo.bytecode.instruction import parse_exception_table


def codes(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


def program(code):
    return [
        (i.opname, None if isinstance(i.argval, types.CodeType) else i.argval)
        for i in dis.get_instructions(code)
        if i.opname != "EXTENDED_ARG" and not i.opname.startswith("JUMP") and "JUMP" not in i.opname
    ]


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
            if hasattr(code, "co_positions"):
                # an instruction without a line gets that of the one before it
                pairs = zip(code.co_positions(), again.co_positions(), strict=True)
                assert all(a == b for a, b in pairs if a[0] is not None)
                assert all(b[0] is not None for b in again.co_positions())
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
