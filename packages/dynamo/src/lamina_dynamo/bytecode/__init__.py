"""Reading and writing the bytecode of the running CPython."""

from .analysis import live_locals
from .assemble import assemble
from .instruction import ExceptionRange, Instruction, copy_instructions, decode, local_names

__all__ = ["ExceptionRange", "Instruction", "assemble", "copy_instructions", "decode", "live_locals", "local_names"]
