"""The C extension built from `_eval_frame.c` and `_guard_program.c`: its functions are described there."""

from typing import Any

def __getattr__(name: str) -> Any: ...
