"""Process replay: the same program gives the same generated code in every process, whatever the hash seed.

The kernel cache rests on it, and a refactoring can be checked by comparing what this script prints before and after:

    python tests/replay/generated_code.py > before.txt
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).with_name("generated_code.py")


def generated(seed: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": seed, "LAMINA_STRICT": "1"}
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_generated_code_is_the_same_in_every_process():
    first = generated("1")
    assert first.count("=== ") >= 6
    assert generated("2") == first
