"""One C++ function for the extern calls of a graph that differ in nothing but their tensors.

Forty equal layers make forty equal calls. Each is a dozen lines (arguments, the call, a look at its results, what to do
when it fails), and the C++ compiler reads every one of them: a third of what a graph of extern calls costs it. Blocks
of text are equal when they are equal up to the names of inputs, owners and pointers; these become parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

NUMBER = "N_"
"""Stands for the number of the call in the text of a block."""

_FEWEST = 4
_STRING = r'"(?:[^"\\]|\\.)*"'  # names of operators are not to be touched
_NAME = re.compile(_STRING + r"|f->(?:in|constants)\[\d+\]|\b(?:[mhp]_\w+|view_\d+)")
_NUMBER = re.compile(_STRING + rf"|\b{NUMBER}\b")
_OWNER = ("t", "lg::Tensor& ")
_KINDS = {"f": ("a", "void* "), "m": _OWNER, "h": _OWNER, "p": ("q", "char*& "), "v": ("v", "")}


@dataclass
class CallBlock:
    """Lines between braces that make one call; they may return 1."""

    lines: list[str]
    number: int
    indent: str


def share_calls(lines: Sequence[str | CallBlock], prefix: str, fixed: bool) -> tuple[str, list[str]]:
    """(text of the shared functions, the lines with every block written out or called). `fixed`: the text mentions no
    variables besides those that become parameters, as it does where sizes are symbols."""
    groups: dict[tuple[str, ...], list[tuple[CallBlock, list[str]]]] = {}
    for block in lines:
        if fixed and isinstance(block, CallBlock):
            template, names = _template(block)
            groups.setdefault(template, []).append((block, names))
    functions: list[str] = []
    calls: dict[int, str] = {}
    for template, members in groups.items():
        if len(members) < _FEWEST:
            continue
        name = f"{prefix}_call_{len(functions)}"
        kept = [k for k, n in enumerate(members[0][1]) if n[0] != "v"]
        parameters = ", ".join(_KINDS[members[0][1][k][0]][1] + _parameter(members[0][1][k], k) for k in kept)
        functions.append(
            f"static int {name}(LaminaFrame* f, int {NUMBER}{', ' if kept else ''}{parameters}) {{\n"
            "  using namespace lg;\n  int failed = 0; (void)failed;\n" + "\n".join(template) + "\n  return 0;\n}\n"
        )
        for block, names in members:
            arguments = "".join(f", {names[k]}" for k in kept)
            calls[id(block)] = f"{block.indent}if ({name}(f, {block.number}{arguments})) return 1;"
    out: list[str] = []
    for line in lines:
        if not isinstance(line, CallBlock):
            out.append(line)
        elif id(line) in calls:
            out.append(calls[id(line)])
        else:
            out.append(f"{line.indent}{{")
            number = str(line.number)
            out.extend(_NUMBER.sub(lambda m, n=number: m[0] if m[0][0] == '"' else n, text) for text in line.lines)
            out.append(f"{line.indent}}}")
    return "".join(functions), out


def _parameter(name: str, k: int) -> str:
    return f"{_KINDS[name[0]][0]}{k}_"


def _template(block: CallBlock) -> tuple[tuple[str, ...], list[str]]:
    """(lines with the names numbered in the order in which they occur, the names)."""
    places: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        name = match[0]
        if name[0] == '"':
            return name
        return _parameter(name, places.setdefault(name, len(places)))

    return tuple(_NAME.sub(numbered, line) for line in block.lines), list(places)


__all__ = ["NUMBER", "CallBlock", "share_calls"]
