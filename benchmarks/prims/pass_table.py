"""Pass table of lamina-primtorch over the operator samples that torch ships.

    python benchmarks/prims/pass_table.py [--per-op N] [--dtypes float32,int64,...] [--layouts plain,strided,transposed]
                                          [--shard K/N --counts FILE.json]
    python benchmarks/prims/pass_table.py --merge FILE.json [FILE.json ...]

Every ATen call that the samples make, forward and backward, is judged twice: the shape rule against eager's metadata,
and the decomposition (recorded, run prim by prim) against eager's values, dtype, shape and stride. Writes
``benchmarks/results/prims_pass_table.md``: one row an overload. A shard writes its counts; --merge makes the table of
them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
import time
from collections import Counter

import torch

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "packages" / "primtorch" / "tests"))

from aten_calls import Watch, ops, replay  # noqa: E402
from one_op import compare  # noqa: E402

from lamina_primtorch import TensorMeta  # noqa: E402
from lamina_primtorch.config import patch  # noqa: E402
from lamina_primtorch.decomps import DECOMPOSITIONS  # noqa: E402
from lamina_primtorch.shape_rules import RULES  # noqa: E402

# What a wrong decomposition differs in, and why it stays; judged by running the calls alone, beside float64.
_STEPS = (
    "bfloat16 that is not contiguous: eager's kernel for it rounds after each step. The decomposition rounds once, is"
    " 3 to 36 times nearer to float64, and bit for bit what eager gives for the same values contiguous"
)
REASONS = {
    "native_batch_norm.default": _STEPS,
    "native_batch_norm_backward.default": _STEPS,
    "batch_norm_backward.default": _STEPS,
}

UNSPECIFIED = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "_conj"}


class Table:
    """Counts by overload: rule right, wrong, declined; decomposition right, wrong, declined; calls without either."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter] = {}
        self.first: dict[str, str] = {}

    def __call__(self, op, args, kwargs, out, state) -> None:
        name = str(op)[5:]
        row = self.counts.setdefault(name, Counter())
        row["calls"] += 1
        rule = RULES.get(op)
        if rule is not None:
            row[self.rule(name, rule, args, kwargs, out)] += 1
        if name in DECOMPOSITIONS and name.split(".")[0] not in UNSPECIFIED:
            try:
                with patch(strict=True):
                    problem, rewritten = compare(op, args, kwargs, out)
            except Exception as e:
                problem, rewritten = f"{type(e).__name__}: {str(e)[:120]}", True
            row["decomp wrong" if problem else "decomp right" if rewritten else "decomp declined"] += 1
            if problem:
                self.first.setdefault(name, problem[:160])

    def rule(self, name, rule, args, kwargs, out) -> str:
        with contextlib.suppress(NotImplementedError):
            got = rule(args, kwargs)
            metas = [got] if isinstance(got, TensorMeta) else list(got)
            outs = [out] if isinstance(out, torch.Tensor) else list(out)
            for m, o in zip(metas, outs, strict=True):
                if m is not None and tuple(m) != (tuple(o.shape), tuple(o.stride()), o.dtype, o.device):
                    self.first.setdefault(
                        name, f"rule: {tuple(m)[:3]}, eager {(tuple(o.shape), o.stride(), o.dtype)}"[:160]
                    )
                    return "rule wrong"
            return "rule right"
        return "rule declined"

    def save(self, path: pathlib.Path, head: str) -> None:
        """Keep the counts for `add`."""
        path.write_text(json.dumps({"counts": self.counts, "first": self.first, "head": head}))

    def add(self, path: pathlib.Path) -> str:
        """Add what a shard counted; its head line."""
        other = json.loads(path.read_text())
        for name, row in other["counts"].items():
            self.counts.setdefault(name, Counter()).update(row)
        self.first = {**other["first"], **self.first}
        return other["head"]

    def write(self, path: pathlib.Path, head: str) -> str:
        columns = [
            "calls",
            "rule right",
            "rule wrong",
            "rule declined",
            "decomp right",
            "decomp wrong",
            "decomp declined",
        ]
        total = sum(self.counts.values(), Counter())
        summary = ", ".join(f"{c} {total[c]}" for c in columns)
        lines = [
            "# Pass table of lamina-primtorch",
            "",
            head,
            "",
            f"Overloads met: {len(self.counts)}. Sums: {summary}.",
            "",
        ]
        wrong = [(n, r["decomp wrong"]) for n, r in self.counts.items() if r["decomp wrong"]]
        known = sum(count for name, count in wrong if name in REASONS)
        lines += [f"Of the wrong decompositions {known} have a reason: {_told(wrong)}.", ""] if wrong else []
        lines += ["| overload | " + " | ".join(columns) + " | first problem |", "|---" * (len(columns) + 2) + "|"]
        for name in sorted(self.counts):
            row = self.counts[name]
            told = [self.first.get(name, ""), REASONS.get(name, "") if row["decomp wrong"] else ""]
            counts = " | ".join(str(row[c] or "") for c in columns)
            lines.append(f"| {name} | {counts} | {'; '.join(filter(None, told))} |")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        return summary


def _told(wrong) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(wrong))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-op", type=int, default=6)
    parser.add_argument("--limit", type=int, default=60, help="judged calls an overload and dtype")
    parser.add_argument("--dtypes", default="float32,int64,bool,bfloat16")
    parser.add_argument("--layouts", default="plain,strided,transposed")
    parser.add_argument("--names", default=None)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--counts", type=pathlib.Path, help="write the counts here instead of the table")
    parser.add_argument("--merge", type=pathlib.Path, nargs="+", help="make the table of these counts")
    parser.add_argument("--note", default="", help="what the table says besides, the commits of its rows for instance")
    args = parser.parse_args()
    table = Table()
    results = ROOT / "benchmarks" / "results" / "prims_pass_table.md"
    if args.merge:
        heads = {table.add(path) for path in args.merge}
        print(table.write(results, " ".join([*sorted(heads), args.note]).strip()))
        return
    k, n = map(int, args.shard.split("/"))
    start = time.time()
    dtypes = [getattr(torch, d) for d in args.dtypes.split(",")]
    for layout in args.layouts.split(","):
        watch = Watch(table, args.limit)
        replay(watch, list(ops(args.names))[k::n], dtypes, args.per_op, layout=layout)
        print(
            f"{layout}: {sum(r['calls'] for r in table.counts.values())} calls, {time.time() - start:.0f} s", flush=True
        )
    head = (
        f"torch {torch.__version__}, CPU; {args.per_op} samples an operator and dtype ({args.dtypes}), layouts"
        f" {args.layouts},"
        f" at most {args.limit} calls an overload and dtype a layout."
    )
    if args.counts:
        table.save(args.counts, head)
    else:
        print(table.write(results, head))


if __name__ == "__main__":
    main()
