"""Speed of translation alone: processor time from a function to its FX graph, side by side with torch.compile, in one
run.

    python benchmarks/capture/translation.py [--json FILE] [--repeat N]

The backend of both hands the graph back as it is ("eager"), so that what is timed is bytecode → graph, guards and new
bytecode, and one run of the graph. Each compiler first compiles a small function, which loads what it loads lazily.
Every sample starts from empty caches; the smallest of N counts.
"""

from __future__ import annotations

import argparse
import json
import math
import time

import torch
from torch import nn

import lamina_dynamo


class Block(nn.Module):
    """A transformer layer written out."""

    def __init__(self, width: int = 64, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, n, c))
        return x + self.down(nn.functional.gelu(self.up(self.behind(x))))


def layers(n):
    """Equal layers: the second and following ones are stamped out where a compiler can do that."""
    return nn.Sequential(*[Block() for _ in range(n)]), torch.randn(2, 8, 64)


def unequal_layers(n):
    """Layers of unequal widths: each is followed by itself."""
    parts = [nn.Sequential(nn.Linear(16 + i, 17 + i), nn.ReLU(), nn.LayerNorm(17 + i)) for i in range(n)]
    return nn.Sequential(*parts), torch.randn(4, 16)


def convolutions(n):
    parts = []
    for i in range(n):
        parts += [nn.Conv2d(4 + i, 5 + i, 3, padding=1), nn.BatchNorm2d(5 + i), nn.ReLU()]
    return nn.Sequential(*parts), torch.randn(2, 4, 8, 8)


def operators(n):
    """Operators in a loop: the cost of a node."""

    def fn(x):
        for i in range(n):
            x = (x * 1.01 + i).sin()
        return x

    return fn, torch.randn(8)


def python(n):
    """Python around few operators: the cost of an instruction."""

    class Item:
        def __init__(self, name, value):
            self.name, self.value = name, value

        def weight(self, scale):
            return self.value * scale if self.value % 2 else -self.value

    def fn(x):
        table = {}
        for i in range(n):
            item = Item(f"n{i}", i)
            table.setdefault(item.name[-1], []).append(item.weight(3))
        sizes = sorted((k, len(v), max(v)) for k, v in table.items())
        for _, count, top in sizes:
            x = x + count * top
        return x

    return fn, torch.randn(8)


PROGRAMS = {
    "12 equal transformer layers": lambda: layers(12),
    "24 unequal linear layers": lambda: unequal_layers(24),
    "20 convolutions": lambda: convolutions(20),
    "300 operators": lambda: operators(100),
    "Python around 10 operators": lambda: python(200),
}


def nodes_backend(count):
    def backend(gm, example_inputs):
        count.append(sum(node.op.startswith("call") for node in gm.graph.nodes))
        return gm.forward

    return backend


def compilers():
    import torch._dynamo

    def theirs(fn, backend):
        torch._dynamo.reset()
        return torch.compile(fn, backend=backend, fullgraph=True, dynamic=False)

    def ours(fn, backend):
        lamina_dynamo.reset()
        return lamina_dynamo.optimize(backend, fullgraph=True, dynamic=False)(fn)

    return {"lamina": ours, "torch.compile": theirs}


def seconds(compile_, make):
    fn, x = make()
    fn(x)
    start = time.process_time()
    fn(x)
    plain = time.process_time() - start
    count: list[int] = []
    start = time.process_time()
    compile_(fn, nodes_backend(count))(x)
    return time.process_time() - start - plain, sum(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = compilers()
    for compile_ in found.values():
        for program in PROGRAMS.values():
            seconds(compile_, program)
    rows = []
    print(f"{'program':<30}{'ours ms':>10}{'theirs ms':>11}{'ratio':>8}{'nodes/s ours':>15}{'theirs':>10}")
    for name, program in PROGRAMS.items():
        best: dict[str, tuple[float, int]] = {}
        for _ in range(args.repeat):
            for who, compile_ in found.items():
                best[who] = min(best.get(who, (math.inf, 0)), seconds(compile_, program))
        (ours, nodes), (theirs, their_nodes) = best["lamina"], best["torch.compile"]
        rows.append({"program": name, "ours_s": ours, "theirs_s": theirs, "nodes": nodes, "their_nodes": their_nodes})
        print(
            f"{name:<30}{ours * 1e3:>10.1f}{theirs * 1e3:>11.1f}{theirs / ours:>8.2f}{nodes / ours:>15.0f}"
            f"{their_nodes / theirs:>10.0f}",
            flush=True,
        )
    mean = math.exp(sum(math.log(r["theirs_s"] / r["ours_s"]) for r in rows) / len(rows))
    print(f"geometric mean: {mean:.2f} times as fast")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
