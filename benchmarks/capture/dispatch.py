"""Cost of a call of a compiled function beyond its graph: guards and dispatch, side by side with torch.compile, in
one run.

    python benchmarks/capture/dispatch.py [--json FILE]

The backend of both returns a function that gives back constants, so that what is timed is the call itself. State is
tensors that the function reads:
attributes of an object ("state"), or the parameters of a chain of nn.Linear ("module"). Also: what the hook costs
code outside compiled regions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

import lamina_dynamo


def null_backend(gm, example_inputs):
    results = tuple(torch.zeros(2, 2) for _ in gm.graph.find_nodes(op="output")[0].args[0])
    return lambda *inputs: results


class State:
    pass


def with_state(n):
    state = State()
    state.tensors = [torch.randn(2, 2) for _ in range(n)]

    def f(x):
        y = x + 1
        for t in state.tensors:
            y = y + t
        return y

    return f, torch.randn(2, 2)


def with_module(n):
    layers = [torch.nn.Linear(2, 2) for _ in range(n // 2)]
    return torch.nn.Sequential(*layers) if layers else torch.nn.ReLU(), torch.randn(2, 2)


def nanoseconds(fn, x, budget=0.3):
    for _ in range(20):
        fn(x)
    n = 10
    while True:
        t = time.perf_counter()
        for _ in range(n):
            fn(x)
        spent = time.perf_counter() - t
        if spent > budget / 8:
            break
        n *= 2
    runs = []
    for _ in range(7):
        t = time.perf_counter()
        for _ in range(n):
            fn(x)
        runs.append((time.perf_counter() - t) / n * 1e9)
    return statistics.median(runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with torch.no_grad():
        for kind, make in (("state", with_state), ("module", with_module)):
            for n in (0, 10, 300):
                fn, x = make(n)
                ours = nanoseconds(lamina_dynamo.optimize(null_backend)(fn), x)
                torch._dynamo.reset()
                theirs = nanoseconds(torch.compile(fn, backend=null_backend), x)
                rows.append({"what": f"{kind} {n}", "ours_ns": ours, "torch_ns": theirs, "ratio": ours / theirs})
                print(
                    f"{kind:7s} {n:4d} tensors: ours {ours:9.0f} ns, torch.compile {theirs:9.0f} ns, "
                    f"ratio {ours / theirs:.3f}",
                    flush=True,
                )

    def outside(x):
        return x

    def loop(x):
        for _ in range(100):
            outside(x)

    plain = nanoseconds(loop, 1) / 100
    compiled = lamina_dynamo.optimize("eager")(lambda x: x + 1)
    compiled(torch.ones(1))
    after = nanoseconds(loop, 1) / 100
    rows.append(
        {
            "what": "call outside compiled regions",
            "before_ns": plain,
            "after_ns": after,
            "hook_installed": lamina_dynamo._eval_frame.is_installed(),
        }
    )
    print(
        f"a call outside compiled regions: {plain:.1f} ns before anything was compiled, {after:.1f} ns after "
        f"(hook installed: {lamina_dynamo._eval_frame.is_installed()})"
    )
    if args.json:
        with open(args.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
