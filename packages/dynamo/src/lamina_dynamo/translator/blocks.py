"""The block stack of Python 3.10: ``try`` and ``with`` blocks that a frame is in, and ``except`` blocks that it runs.

From 3.11 on exception tables say the same. A frame is not left inside a block at a graph break (its block stack could
not be made again): the break is at the instruction that begins the outermost block, and eager runs the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..resume import HandlerState
from ..variables.base import VariableTracker

if TYPE_CHECKING:
    from ..bytecode import Instruction
    from .base import Translator


class Block:
    """``target``: where the handler starts, None while it runs. ``depth``: objects on the stack below the block.
    ``count``: number of the instruction that began it, as `Translator.current_count` counts.
    """

    __slots__ = ("count", "depth", "target")

    def __init__(self, target: Instruction | None, depth: int, count: int):
        self.target, self.depth, self.count = target, depth, count


def begin_block(tx: Translator, target: Instruction | None) -> None:
    tx.blocks.append(Block(target, len(tx.stack), tx.current_count))


def leave_handler(tx: Translator, state: Any) -> None:
    """What was handled before is handled again."""
    state.over = True
    tx.root.handled_exception = tx.outer_handled if state.previous is None else state.previous


def enter_handler(tx: Translator, exc: VariableTracker, nothing: VariableTracker) -> Instruction | None:
    """Unwind the blocks of ``tx`` down to the one that handles ``exc``, and put on the stack what its handler expects:
    three objects of the exception handled before and three of this one. The handler's first instruction, or None if
    the exception leaves the frame.
    """
    if tx.blocks:
        tx.left_block = tx.blocks[0].count
    while tx.blocks:
        block = tx.blocks.pop()
        if block.target is None:
            leave_handler(tx, tx.stack[block.depth + 2])
            del tx.stack[block.depth :]
            continue
        del tx.stack[block.depth :]
        tx.blocks.append(Block(None, block.depth, block.count))
        tx.stack += (nothing, nothing, handle(tx, exc), exc, exc, exc)
        tx.left_block = None
        return block.target
    return None


def handle(tx: Translator, exc: VariableTracker) -> HandlerState:
    """``exc`` is handled from here on; the state that says what was before."""
    previous = tx.root.handled_exception
    if tx.is_generator and previous is tx.outer_handled:
        previous = None  # another caller may resume it
    tx.root.handled_exception = exc
    return HandlerState(previous, exc)


_PASSIVE = {"DUP_TOP", "NOP", "BUILD_TUPLE"}


def misses_exit(kind: Any) -> bool:
    """Does ``except kind:`` let GeneratorExit through?"""
    return isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(GeneratorExit, kind)


def passes_exit(tx: Translator, block: Block) -> bool:
    """Does the handler of ``block`` let GeneratorExit through without running code of the program?"""
    if block.target is None:
        return True
    inst = block.target
    kinds: list[Any] = []
    while inst.opname != "RERAISE":
        if inst.opname == "LOAD_GLOBAL":
            kinds.append(tx.f_globals.get(inst.argval, tx.f_builtins.get(inst.argval)))
        elif inst.opname == "JUMP_IF_NOT_EXC_MATCH":
            if not kinds or not all(misses_exit(kind) for kind in kinds):
                return False
            kinds, inst = [], inst.target
            continue
        elif inst.opname not in _PASSIVE:
            return False
        inst = tx.instructions[inst.index + 1]
    return True
