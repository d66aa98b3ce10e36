"""Pass table of `lamina.compile` over the operator and module samples that torch ships: values, gradients, dtypes,
shapes, strides and errors, compared with eager.

    python -m benchmarks.ops.op_db run OUT.jsonl [--shard K/N] [--dtypes float32,...] [--per-op N]
                                                 [--names SUBSTR,=NAME,...]
                                                 [--layouts plain,transposed,strided] [--backend inductor]
                                                 [--modules] [--errors] [--variant method|inplace|out]
                                                 [--dynamic] [--gradgrad]
    python -m benchmarks.ops.op_db table OUT.jsonl [...]     writes benchmarks/results/op_db.md

A run is resumable: operators that OUT.jsonl already has are left out. The samples of one operator, all dtypes and
layouts together, are one compiled program, so that an operator costs one compilation; if that program fails, each
sample is compiled alone. With --dynamic each call is a program of its own with symbolic sizes, and calls that differ
in sizes only share one. An operator that kills its process is recorded as a crash by the parent.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .judge import Expected, is_closer_than_eager, judge, results_of
from .samples import DTYPES, LAYOUTS, VARIANTS, Case, cases_of, error_cases, module_cases, module_error_cases, spread

ROOT = pathlib.Path(__file__).parents[2]
CLOSER = "nearer to float64 than eager: "  # marks half-precision results that differ from eager's for that reason
Found = list[tuple[str, str | None]]


def compiled(program: Callable[..., Any], backend: str, dynamic: bool | None = None) -> Callable[..., Any]:
    """The program compiled afresh."""
    import lamina

    lamina.reset()
    torch.manual_seed(1)
    return lamina.compile(program, backend=backend, dynamic=dynamic)


def check(cases: list[Case], backend: str, twice: bool = False) -> Found:
    """(label, problem or None) of each case that eager runs; one program first, each alone if that fails."""
    expected = [e for e in (Expected(c, twice) for c in cases) if e.error is None]
    found: Found = []
    alone = expected
    if len(expected) > 1:
        alone = []
        calls = [e.case.call for e in expected]

        def program(many: list[Any]) -> list[tuple[Any, ...]]:
            return [results_of(call, arguments) for call, arguments in zip(calls, many)]

        made = [e.case.arguments() for e in expected]
        try:
            outs = compiled(program, backend)([a for a, _ in made])
        except Exception:
            alone = expected
        else:
            for e, out, (arguments, leaves) in zip(expected, outs, made, strict=True):
                problem = judge(e, out, arguments, leaves)
                if problem:
                    alone.append(e)
                else:
                    found.append((e.case.label, None))
    for e in alone:
        found.extend(check_sizes([e], backend, None))
    return found


def check_dynamic(cases: list[Case], backend: str, groups: int) -> Found:
    """Each group of cases that differ in sizes only is one program with symbolic sizes; at most `groups` of them and
    three sizes of each."""
    expected = [e for e in map(Expected, cases) if e.error is None]
    by_structure = itertools.groupby(sorted(expected, key=lambda e: e.case.structure()), lambda e: e.case.structure())
    found: Found = []
    for group in spread([list(g) for _, g in by_structure], groups):
        found.extend(check_sizes(spread(group, 3), backend, True))
    return found


def check_sizes(expected: list[Expected], backend: str, dynamic: bool | None) -> Found:
    """One call, compiled once, on the arguments of each of the cases in turn."""
    call = expected[0].case.call

    def program(arguments: Any) -> tuple[Any, ...]:
        return results_of(call, arguments)

    fast = compiled(program, backend, dynamic)
    found: Found = []
    for e in expected:
        arguments, leaves = e.case.arguments()
        torch.manual_seed(1)
        try:
            out = fast(arguments)
        except Exception as error:
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            problem: str | None = (
                f"raised {type(error).__name__}: {str(error)[:300]} (cause {type(cause).__name__}: {str(cause)[:200]})"
            )
        else:
            problem = judge(e, out, arguments, leaves)
            if problem and ": values " in problem and is_closer_than_eager(e, fast):
                found.append((CLOSER + e.case.label, None))
                continue
        found.append((e.case.label, problem))
    return found


def check_errors(cases: list[Case], backend: str) -> Found:
    """Inputs that eager rejects: compiled must raise the same type of error."""
    found: Found = []
    for case in cases:
        want = Expected(case).error
        if want is None:
            continue

        def program(arguments: Any, call: Any = case.call) -> tuple[Any, ...]:
            return results_of(call, arguments)

        try:
            compiled(program, backend)(case.arguments()[0])
        except Exception as got:
            same = isinstance(got, type(want)) or isinstance(want, type(got))
            problem = None if same else f"raised {type(got).__name__}: {str(got)[:200]}, eager {type(want).__name__}"
        else:
            problem = f"raised nothing, eager {type(want).__name__}: {str(want)[:120]}"
        found.append((case.label, problem))
    return found


def jobs(options: argparse.Namespace) -> list[tuple[str, Callable[[], Found]]]:
    """(key, function that checks it) of every operator or module of this shard."""
    dtypes = [getattr(torch, d) for d in options.dtypes.split(",")]
    layouts, backend, per_op = options.layouts.split(","), options.backend, options.per_op
    prefix = " ".join(
        [w for w, on in (("dynamic", options.dynamic), ("gradgrad", options.gradgrad)) if on]
        + [options.variant] * (options.variant != "function")
    )  # fmt: skip

    def run(cases: list[Case]) -> Found:
        if options.dynamic:
            return check_dynamic(cases, backend, per_op)
        return check(cases, backend, options.gradgrad)

    out: list[tuple[str, Callable[[], Found]]] = []
    if options.modules:
        from torch.testing._internal.common_modules import module_db

        for info in module_db:
            if options.errors:
                out.append((
                    f"errors module {info.name}",
                    lambda info=info: check_errors(list(module_error_cases(info)), backend),
                ))
            elif not options.gradgrad or info.supports_gradgrad:
                out.append((
                    f"{prefix} module {info.name}".lstrip(),
                    lambda info=info: run(list(module_cases(info, dtypes, per_op))),
                ))
    else:
        from torch.testing._internal.common_methods_invocations import op_db

        for info in op_db:
            key = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
            if options.errors:
                out.append((f"errors {key}", lambda info=info: check_errors(list(error_cases(info)), backend)))
            elif not options.gradgrad or info.supports_gradgrad:
                count = 1000 if options.dynamic else per_op
                out.append((
                    f"{prefix} {key}".lstrip(),
                    lambda info=info, n=count: run(list(cases_of(info, dtypes, layouts, n, options.variant))),
                ))
    if options.names:
        wanted = options.names.split(",")
        out = [j for j in out if any(j[0].split(" ")[-1] == w[1:] if w[:1] == "=" else w in j[0] for w in wanted)]
    k, n = map(int, options.shard.split("/"))
    return out[k::n]


def route() -> dict[str, dict[str, int]]:
    """Why capture handed something to eager since the last call."""
    from lamina_dynamo.counters import counters, reset_counters

    now = counters()
    reset_counters()
    return {k: now[k] for k in ("breaks", "skips", "recompiles") if now[k]}


def tally(found: Found) -> dict[str, list[int]]:
    """"dtype layout" -> [right, wrong]."""
    counts: dict[str, list[int]] = {}
    for label, problem in found:
        words = label.removeprefix(CLOSER).split(" ", 2)
        counts.setdefault(" ".join(words[:2]), [0, 0])[problem is not None] += 1
    return counts


def commit() -> str:
    """The commit of the tree that is run, with a plus sign where it was changed since."""
    git = ("git", "-C", str(ROOT))
    try:
        head = subprocess.run([*git, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "packages/*/src"], check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + "+" * bool(changed)


def work(options: argparse.Namespace) -> None:
    """Checks the jobs that OUT lacks, one line each; a line is announced before its job starts."""
    warnings.simplefilter("ignore")
    path = pathlib.Path(options.out)
    of = commit()
    done = {json.loads(line)["key"] for line in path.read_text().splitlines()} if path.exists() else set()
    for key, run in jobs(options):
        if key in done:
            continue
        pathlib.Path(f"{path}.current").write_text(key)
        start = time.time()
        route()
        try:
            found = run()
        except Exception as e:
            found = [("all", f"harness {type(e).__name__}: {str(e)[:200]}")]
        row = {
            "key": key, "backend": options.backend, "torch": torch.__version__, "commit": of, "dtypes": options.dtypes,
            "counts": tally(found), "passed": sum(p is None for _, p in found),
            "seconds": round(time.time() - start, 2), "problems": [[label, p] for label, p in found if p is not None],
            "closer": [label for label, _ in found if label.startswith(CLOSER)], "route": route(),
        }  # fmt: skip
        with path.open("a") as f:
            f.write(json.dumps(row) + "\n")
    pathlib.Path(f"{path}.current").write_text("")


def supervise(options: argparse.Namespace, argv: list[str]) -> None:
    """Runs `work` in a child; a child that dies or hangs is recorded and a new one goes on behind it."""
    path = pathlib.Path(options.out)
    current = pathlib.Path(f"{path}.current")
    current.unlink(missing_ok=True)
    recorded = ""
    while True:
        child = subprocess.Popen([sys.executable, "-m", "benchmarks.ops.op_db", "work", *argv], cwd=ROOT)
        last, since = "", time.time()
        while child.poll() is None:
            time.sleep(0.5)
            now = current.read_text() if current.exists() else ""
            if now != last:
                last, since = now, time.time()
            elif time.time() - since > options.limit:
                child.kill()
                child.wait()
        key = current.read_text() if current.exists() else ""
        if not key:
            return
        if key == recorded:
            raise RuntimeError(f"the child ends without starting anything: {child.returncode}")
        recorded = key
        problems = [["all", f"process ended: {child.returncode}"]]
        row = {
            "key": key, "backend": options.backend, "dtypes": options.dtypes, "passed": 0, "seconds": 0,
            "problems": problems,
        }  # fmt: skip
        with path.open("a") as f:
            f.write(json.dumps(row) + "\n")


# Why a difference from eager stays. Each was judged by running the case alone in eager and compiled.
_MAX = "eager's backward has a way of its own on the CPU, contiguous"
_FFT = "torch 2.11: its meta and its CPU kernel give different layouts (with 2.13 the same samples are right)"
_EMPTY = "an empty tensor: no element has an address; eager's strides depend on which of its loops was chosen"
_SYMBOLIC = "an empty tensor with symbolic sizes: a stride is a product of sizes, one of which turns out to be 0"
_ONE = "the stride of a dimension of size one, which no address depends on"
_OUT = "eager ignores the strides of out= and leaves other values; compiled: as without out="
_INPLACE = (
    "autograd's formula writes into a buffer of its own, in LAPACK's layout, and hands it on; on tensors without data"
    " it takes its other way, without writes. The values agree"
)
# by operator and a part of the problem's text
EXCEPTIONS = [
    ("max.reduction_no_dim", "gradient 0: stride", _MAX),
    ("min.reduction_no_dim", "gradient 0: stride", _MAX),
    ("fft.hfft", "gradient 0: stride", _FFT),
    ("fft.irfft", "gradient 0: stride", _FFT),
    ("fft.fft", "stride", _FFT),
    ("fft.ifft", "stride", _FFT),
    ("fft.rfft", "stride", _FFT),
    ("fft.ihfft", "stride", _FFT),
    ("ldexp", "of (0, 10, 3)", _EMPTY),
    ("nn.functional.pixel_unshuffle", "of (1, 1, 1, 0)", _EMPTY),
    ("cdist", "of (0, 5)", _EMPTY),
    ("nn.functional.rms_norm", "of (1, 2)", _ONE),
    ("einsum", "of (1, 2, 3)", _ONE),
    ("linalg.householder_product", "gradient 0: stride", _INPLACE),
    ("ormqr", "gradient 0: stride", _INPLACE),
    ("nn.functional.avg_pool3d", "result 0: values", _OUT),
    ("narrow_copy", "result 0: values", _OUT),
    ("constant_pad_nd", "of (7, 0)", _SYMBOLIC),
    ("nn.functional.pad.constant", "of (7, 0)", _SYMBOLIC),
    ("nn.functional.unfold", "of (0, 1, 5, 5)", _SYMBOLIC),
    ("fft.ihfft2", "stride", _FFT),
    ("fft.irfft2", "gradient 0: stride", _FFT),
    ("take", "of (1,)", _ONE),
    ("prod", "gradient 0: stride", "eager's backward goes by how many values are 0, each way has a layout"),
    ("__rdiv__", "values [-inf", "float16 at the edge of overflow: 1/x, about 256, is squared"),
    ("", "process ended: -9", "took longer than the limit or more memory than there is under this load"),
]


def kind_of(key: str) -> str:
    """The section of the table that a row belongs to."""
    words = key.split(" ")
    known = ("dynamic", "gradgrad", "method", "inplace", "out", "errors", "module")
    return " ".join(w for w in words[:-1] if w in known) or "operator"


def reason_for(key: str, problem: str) -> str:
    name = key.rsplit(" ", 1)[-1]
    return next((why for op, part, why in EXCEPTIONS if (not op or name == op) and part in problem), "")


SECTIONS = {
    "operator": "forward and gradient, static sizes", "dynamic": "one program with symbolic sizes, called with several",
    "gradgrad": "gradients of gradients", "method": "as a method", "inplace": "in place on a copy", "out": "with out=",
    "errors": "inputs that eager rejects: the same type of error",
    "errors module": "constructions and calls that eager rejects: the same type of error",
    "module": "forward and gradient, train and eval", "dynamic module": "with symbolic sizes, train and eval",
}  # fmt: skip


def versions_of(rows: list[dict[str, Any]]) -> str:
    """Versions of torch that rows were made with; of rows that do not say, the running one."""
    return ", ".join(sorted({row.get("torch", torch.__version__).split("+")[0] for row in rows}))


def usual_dtypes(key: str) -> str:
    """The dtypes of rows that were written before they told."""
    kind = kind_of(key)
    if kind in ("method", "inplace", "out", "gradgrad"):
        return "float64"
    return {"dynamic": "float32", "module": "float32,bfloat16"}.get(kind, ",".join(DTYPES))


def commits_of(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Lines that tell which rows were run on which commit."""
    by_commit: dict[str, list[str]] = {}
    for row in rows:
        by_commit.setdefault(row.get("commit", ""), []).append(f"{row['key']} ({row['backend']})")
    lines = []
    for commit, keys in sorted(by_commit.items()):
        names = f": {', '.join(sorted(keys))}" if commit and len(keys) <= 80 else ""
        where = f"of commit {commit}" if commit else "that name no commit, of d7ba4ac to 07baf62"
        lines.append(f"- {len(keys)} rows {where}{names}")
    return ["Rows by commit:", "", *lines]


def table(paths: list[str]) -> None:
    """Writes the pass table from the lines of all runs; a later line of a row with the same dtypes replaces an earlier
    one."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path in paths:
        for line in pathlib.Path(path).read_text().splitlines():
            row = json.loads(line)
            rows[row["key"], row.get("backend", "reference"), row.get("dtypes") or usual_dtypes(row["key"])] = row
    lines = [
        "# Operator and module samples through lamina.compile", "",
        "CPU, strict mode. Made by `python -m benchmarks.ops.op_db`. A row is an operator"
        " or a module; a sample is a call in one dtype and layout, judged for values, dtype, shape, stride, arguments"
        " after the call, and gradients with their strides.", "", *commits_of(rows.values()), "",
        "| what | target | torch | rows | samples right | of these nearer to float64 than eager | wrong, with reason"
        " | wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (key, backend, _), row in sorted(rows.items()):
        groups.setdefault((kind_of(key), backend), []).append(row)
    for (kind, backend), members in groups.items():
        problems = [(r["key"], p) for r in members for _, p in r["problems"]]
        known = sum(bool(reason_for(k, p)) for k, p in problems)
        lines.append(
            f"| {kind}: {SECTIONS.get(kind, '')} | {backend} | {versions_of(members)} | "
            f"{len({r['key'] for r in members})} | "
            f"{sum(r['passed'] for r in members)} | "
            f"{sum(len(r.get('closer', ())) for r in members)} | {known} | {len(problems) - known} |"
        )
    lines += by_dtype(groups)
    breaks: Counter[str] = Counter()
    for row in rows.values():
        breaks.update({kind: 1 for kind in row.get("route", {}).get("breaks", {})})
    if breaks:
        told = ", ".join(f"{kind} {n}" for kind, n in breaks.most_common())
        lines += ["", f"Rows with a graph break, by its kind: {told}."]
    lines += ["", "Differences:", ""]
    lines += ["| row | target | right | wrong | first problem | reason |", "|---|---|---|---|---|---|"]
    for (key, backend, _), row in sorted(rows.items()):
        if row["problems"]:
            label, problem = row["problems"][0]
            text = f"{label}: {problem}".replace("|", "/").replace("\n", " ")[:260]
            reason = reason_for(key, problem)
            lines.append(f"| {key} | {backend} | {row['passed']} | {len(row['problems'])} | {text} | {reason} |")
    out = ROOT / "benchmarks" / "results" / "op_db.md"
    out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[:20]))


def by_dtype(groups: dict[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    """Lines of a table of the samples that are right, by dtype and layout, of the rows that tell."""
    lines: list[str] = []
    for (kind, backend), members in groups.items():
        counts: dict[str, dict[str, list[int]]] = {}
        for row in members:
            for what, (right, wrong) in row.get("counts", {}).items():
                dtype, _, layout = what.partition(" ")
                if dtype in DTYPES:
                    cell = counts.setdefault(dtype, {}).setdefault(layout, [0, 0])
                    cell[0] += right
                    cell[1] += wrong
        layouts = [w for w in (*LAYOUTS, "train", "eval") if any(w in c for c in counts.values())]
        if not counts:
            continue
        told, rows = sum("counts" in r for r in members), len(members)
        lines += ["", f"{kind}, {backend}: samples right by dtype and layout (wrong ones behind a minus sign), of the"
                  f" {told} rows of {rows} that tell; the others are of an earlier run with fewer samples"
                  if told < rows else
                  f"{kind}, {backend}: samples right by dtype and layout (wrong ones behind a minus sign)", ""]
        lines += [f"| dtype | {' | '.join(layouts)} |", "|---" * (len(layouts) + 1) + "|"]
        for dtype in (d for d in DTYPES if d in counts):
            cells = [counts[dtype].get(w, [0, 0]) for w in layouts]
            shown = (f"{right}{f' − {wrong}' if wrong else ''}" for right, wrong in cells)
            lines.append(f"| {dtype} | {' | '.join(shown)} |")
    return lines


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["run", "work", "table"])
    p.add_argument("out", nargs="+")
    p.add_argument("--shard", default="0/1")
    p.add_argument("--dtypes", default=",".join(DTYPES))
    p.add_argument("--layouts", default=",".join(LAYOUTS))
    p.add_argument("--per-op", type=int, default=3)
    p.add_argument("--names", default="")
    p.add_argument("--backend", default="inductor")
    p.add_argument("--modules", action="store_true")
    p.add_argument("--errors", action="store_true")
    p.add_argument("--variant", default="function", choices=VARIANTS)
    p.add_argument("--dynamic", action="store_true", help="symbolic sizes, several sizes a program")
    p.add_argument("--gradgrad", action="store_true", help="gradients of gradients as well")
    p.add_argument("--limit", type=float, default=300.0, help="seconds one operator may take")
    return p


def main() -> None:
    argv = sys.argv[1:]
    options = parser().parse_args(argv)
    if options.command == "table":
        table(options.out)
        return
    options.out = options.out[0]
    if options.command == "work":
        work(options)
    else:
        supervise(options, argv[1:])


if __name__ == "__main__":
    main()
