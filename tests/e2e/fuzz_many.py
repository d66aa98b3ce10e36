"""Random programs for a given time, every failure kept:

    python tests/e2e/fuzz_many.py OUT.jsonl --seconds 300 --seed 1 [--dynamic] [--prims]

A line of OUT.jsonl is a failure: the seed, the program, its inputs and the error. Nothing is shrunk, so that the time
goes into new programs; hypothesis' own run (`test_fuzz.py`) shrinks. A program that kills the process is a line, too:
the parent starts a new child with the next seed. The last line counts the programs.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

HERE = pathlib.Path(__file__).resolve().parent
INDUCTOR_TESTS = HERE.parents[1] / "packages" / "inductor" / "tests"
PER_SEED = 150


def describe(inputs: list[torch.Tensor]) -> list[str]:
    return [
        f"{str(t.dtype)[6:]}{list(t.shape)} stride {list(t.stride())}{' grad' if t.requires_grad else ''}"
        for t in inputs
    ]


def plain(inputs: list[torch.Tensor]) -> list[tuple[Any, ...]]:
    """What makes the inputs again, in a form that any version of torch reads."""
    return [
        (str(t.dtype), tuple(t.shape), tuple(t.stride()), t.requires_grad, t.detach().double().flatten().tolist())
        for t in inputs
    ]


def end_to_end(dynamic: bool) -> tuple[Any, Callable[[Any], None], Callable[[Any], dict[str, Any]]]:
    """(strategy, check, description) of programs through `lamina.compile`."""
    sys.path.insert(0, str(HERE))
    import test_fuzz

    def check(program: Any) -> None:
        test_fuzz.check(*program, **({"dynamic": True} if dynamic else {}))

    return test_fuzz.programs(), check, lambda p: {
        "source": p[0], "inputs": describe(p[1]), "data": plain(p[1]), "dynamic": dynamic,
    }  # fmt: skip


def prims() -> tuple[Any, Callable[[Any], None], Callable[[Any], dict[str, Any]]]:
    """The same of graphs of prims, for inductor alone."""
    sys.path[:0] = [str(INDUCTOR_TESTS)]
    import importlib.util

    spec = importlib.util.spec_from_file_location("fuzz_of_inductor", INDUCTOR_TESTS / "test_fuzz.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return st.data(), module.test_random_programs.hypothesis.inner_test, lambda _: {}


def graph_of(error: BaseException) -> str:
    """Code of the graph that a frame of the traceback ran."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        gm = frame.f_locals.get("gm")
        if isinstance(gm, torch.fx.GraphModule):
            return str(gm.code)
    return ""


def work(options: argparse.Namespace) -> None:
    strategy, check, told = prims() if options.prims else end_to_end(options.dynamic)
    out, current = pathlib.Path(options.out), pathlib.Path(f"{options.out}.current")
    state = {"programs": 0, "seed": options.seed}
    end = time.time() + options.seconds

    def record(row: dict[str, Any]) -> None:
        with out.open("a") as f:
            f.write(json.dumps(row) + "\n")

    def one(program: Any) -> None:
        if time.time() > end:
            record({"programs": state["programs"], "first seed": options.seed, "last seed": state["seed"]})
            current.unlink(missing_ok=True)
            os._exit(0)
        description = told(program)
        current.write_bytes(pickle.dumps({"seed": state["seed"], **description}))
        state["programs"] += 1
        try:
            check(program)
        except Exception as error:
            if type(error).__module__.startswith("hypothesis"):
                raise
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            row = {"seed": state["seed"], **description, "error": f"{type(error).__name__}: {str(error)[:1500]}"}
            if cause is not error:
                row["cause"] = "".join(traceback.format_exception(cause)[-6:])[-2500:]
            if options.prims:
                row["graph"] = graph_of(error)
            record(row)

    while True:
        run = given(strategy)(one)
        run = settings(
            max_examples=PER_SEED, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(run)  # fmt: skip
        try:
            seed(state["seed"])(run)()
        except Exception as error:
            record({"seed": state["seed"], "error": f"harness {type(error).__name__}: {str(error)[:500]}"})
        state["seed"] += 1


def supervise(options: argparse.Namespace) -> None:
    """Runs `work` in children until the time is over; a child that dies is a line."""
    current = pathlib.Path(f"{options.out}.current")
    end, number = time.time() + options.seconds, options.seed
    while (left := end - time.time()) > 5:
        current.unlink(missing_ok=True)
        flags = ["--prims"] * options.prims + ["--dynamic"] * options.dynamic
        command = [sys.executable, __file__, options.out, "--child", "--seconds", str(left), "--seed", str(number)]
        try:
            code = subprocess.run([*command, *flags], timeout=left + 60).returncode
        except subprocess.TimeoutExpired:
            code = -9
        if current.exists():
            row = {**pickle.loads(current.read_bytes()), "error": f"process ended: {code}"}
            with open(options.out, "a") as f:
                f.write(json.dumps(row) + "\n")
            number = row["seed"] + 1000
        elif code != 0:
            raise RuntimeError(f"the child ends without starting anything: {code}")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--seconds", type=float, default=60.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--dynamic", action="store_true", help="symbolic sizes")
    p.add_argument("--prims", action="store_true", help="graphs of prims for inductor alone")
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = p.parse_args()
    if options.child:
        work(options)
    else:
        supervise(options)


if __name__ == "__main__":
    main()
