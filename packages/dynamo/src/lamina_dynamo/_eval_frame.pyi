"""The C extension built from the C files of this folder: its functions are described there."""

from typing import Any

def __getattr__(name: str) -> Any: ...
