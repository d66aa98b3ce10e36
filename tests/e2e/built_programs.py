"""The calls of sanitized_programs.py, compiled for one instruction set by one compiler with warnings as errors, and
compared with eager. Started by test_compilers.py: ``built_programs.py LEVEL [CALL...]``; LEVEL "scalar": no vectors.
"""

from __future__ import annotations

import sys

import torch
from sanitized_programs import CALLS

import lamina
from lamina_inductor import toolchain

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 4e-3}
SIZES = ((3, 7), (18, 70))


def choose(level: str) -> None:
    """Code is made for `level` from here on."""
    toolchain.cpu_level = lambda: "base" if level == "scalar" else level
    if level == "scalar":
        toolchain.vector_bytes = lambda level=None: 0
    unused = ("-Wno-unused-parameter", "-Wno-unused-variable", "-Wno-unused-function", "-Wno-unused-value")
    toolchain.BASE_FLAGS = (*toolchain.BASE_FLAGS, "-Wall", "-Wextra", "-Werror", *unused)


def compare(name: str, got: object, want: object) -> None:
    if isinstance(want, tuple):
        for a, b in zip(got, want, strict=True):
            compare(name, a, b)
        return
    close = TOLERANCE.get(want.dtype, 0)
    torch.testing.assert_close(got, want, rtol=close, atol=close * 4, equal_nan=True, msg=lambda m: f"{name}: {m}")


def main(level: str, names: list[str]) -> None:
    choose(level)
    torch.manual_seed(0)
    for name, fn in CALLS.items():
        if names and name not in names:
            continue
        for shape in SIZES:
            lamina.reset()
            x = torch.randn(shape)
            compare(name, lamina.compile(fn)(x), fn(x))
        print(name, flush=True)
    print("finished", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
