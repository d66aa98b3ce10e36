"""Answers found by measuring, kept from process to process: one small JSON file each."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any


def read_answer(path: pathlib.Path) -> Any:
    """An earlier answer; None where there is none."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def write_answer(path: pathlib.Path, answer: Any) -> None:
    """Keep an answer; a cache that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(fd, "w") as f:
            json.dump(answer, f)
        os.replace(part, path)
    except OSError:
        pass


__all__ = ["read_answer", "write_answer"]
