"""Turn the suite's results into a table, plots and the weighted figure of the published headline (0.75 · AMP + 0.25 ·
float32 of the geometric mean speed-ups).
"""

from __future__ import annotations

import datetime
import math
import os
import pathlib
import platform
from collections import defaultdict

MOST_LABELS = 200
"""Rows of the plot that has a row for each run."""

WEIGHTS = {"amp": 0.75, "float32": 0.25}


def geomean(xs: list[float]) -> float:
    return math.exp(sum(math.log(x) for x in xs) / len(xs)) if xs else float("nan")


def weighted_figure(results: list[dict], impl: str) -> dict[str, float]:
    """Mode -> weighted geometric mean speed-up over eager. A precision that was not run is left out and the rest
    reweighted.
    """
    out = {}
    for mode in ("infer", "train"):
        parts = {}
        for dtype in WEIGHTS:
            xs = [
                r["speedup"]
                for r in results
                if r["impl"] == impl
                and r["mode"] == mode
                and r["dtype"] == dtype
                and r.get("speedup")
                and r["status"] == "ok"
            ]
            if xs:
                parts[dtype] = geomean(xs)
        if parts:
            total = sum(WEIGHTS[d] for d in parts)
            out[mode] = sum(WEIGHTS[d] / total * v for d, v in parts.items())
    return out


def machine() -> str:
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            cpu = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), cpu)
    except OSError:
        pass
    return f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}"


def coverage(results: list[dict], impl: str) -> list[str]:
    """A table of suite, mode and precision: runs that give eager's result, runs made, models that can be built."""
    from . import registry

    buildable: dict[str, int] = defaultdict(int)
    for entry in registry.load():
        buildable[entry.suite] += entry.missing is None
    made: dict[tuple, list[dict]] = defaultdict(list)
    for r in results:
        if r["impl"] == impl and r["suite"] in buildable and r.get("cache", "cold") == "cold":
            made[(r["suite"], r["mode"], r["dtype"])].append(r)
    if not made:
        return []
    lines = ["| suite | mode | precision | right | run | buildable | in eager in part | more breaks than the list |"]
    lines.append("|" + "---|" * 8)
    for suite in buildable:
        for mode in ("infer", "train"):
            for dtype in ("float32", "amp"):
                rs = made.get((suite, mode, dtype))
                if not rs:
                    continue
                right = sum(r["status"] == "ok" for r in rs)
                eager = sum(bool(r.get("fallbacks") or r.get("warnings")) for r in rs)
                over = sum(r.get("breaks", 0) > (r.get("torch_breaks") or 0) for r in rs)
                row = [suite, mode, dtype, right, len(rs), buildable[suite], eager, over]
                lines.append("| " + " | ".join(map(str, row)) + " |")
    return [*lines, ""]


def where(results: list[dict]) -> str:
    """Date, machines, versions and threads as the rows say; rows of before they said so were made here."""
    import torch

    machines = sorted({r.get("machine") or "a machine that the rows do not name" for r in results})
    torches = sorted({r["torch"] for r in results if r.get("torch")}) or [torch.__version__]
    threads = sorted({r["threads"] for r in results if r.get("threads")})
    return (
        f"{datetime.date.today().isoformat()} · {'; '.join(machines)} · torch {', '.join(torches)}"
        + (f" · {', '.join(map(str, threads))} thread{'s' if threads != [1] else ''} a process" if threads else "")
    )


def table(results: list[dict], note: str = "") -> str:
    lines = ["# Model suite", "", where(results), "", *([note, ""] if note else [])]
    commits = sorted({r["commit"] for r in results if r.get("commit")})
    if commits:
        unnamed = sum(not r.get("commit") for r in results)
        lines += [f"Commits: {', '.join(commits)}" + (f"; {unnamed} rows of earlier ones" if unnamed else ""), ""]
    impls = sorted({r["impl"] for r in results})
    for impl in impls:
        mine = [r for r in results if r["impl"] == impl and r.get("cache", "cold") == "cold"]
        fails = [r for r in mine if r["status"] == "eager fails"]
        mine = [r for r in mine if r["status"] != "eager fails"]
        works = [r for r in mine if r["status"] == "ok"]
        lines.append(
            f"**{impl}**: {len(works)} of {len(mine)} runs give eager's result"
            + (f" ({100 * len(works) / len(mine):.1f} %)" if mine else "")
        )
        if fails:
            names = ", ".join(sorted({r["name"] for r in fails}))
            lines.append(f"- left out, since eager itself raises: {len(fails)}: {names}")
        for mode, v in weighted_figure(mine, impl).items():
            lines.append(f"- {mode}: weighted geometric mean speed-up over eager {v:.3f}")
        firsts = [r["first_call_s"] for r in works if "first_call_s" in r]
        if firsts:
            lines.append(
                f"- first call, empty cache: geometric mean {geomean(firsts):.2f} s, longest {max(firsts):.1f} s"
            )
        over = [r for r in works if r.get("torch_breaks") is not None and r["breaks"] > r["torch_breaks"]]
        lines.append(
            f"- more graph breaks than the list's torch.compile column: {len(over)}"
            + (": " + ", ".join(sorted({r["name"] for r in over})) if over else "")
        )
        ties = [r["name"] for r in works if any("medians" in e for e in r.get("errors", {}).values())]
        spread = [r["name"] for r in works if any("spread" in e for e in r.get("errors", {}).values())]
        spread = [name for name in spread if name not in ties]
        if spread:
            lines.append(
                f"- judged by what one rounding of the inputs does in eager (docs/decisions/0004): {len(spread)}: "
                + ", ".join(sorted(spread))
            )
        if ties:
            lines.append(
                f"- near ties, no worse than eager on programs some roundings away (decision 0004): {len(ties)}: "
                + ", ".join(sorted(ties))
            )
        lines.append("")
        lines += coverage(results, impl)
    by: dict[tuple, dict[str, dict]] = defaultdict(dict)
    for r in results:
        if r.get("cache", "cold") == "cold":
            by[(r["suite"], r["name"], r["mode"], r["dtype"])][r["impl"]] = r
    head = ["suite", "model", "mode", "precision", "torch breaks"]
    for i in impls:
        head += [f"{i} status", f"{i} graphs/breaks", f"{i} first s", f"{i} ms", f"{i} speed-up", f"{i} error"]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (suite, name, mode, dtype), rs in sorted(by.items()):
        tb = next(iter(rs.values())).get("torch_breaks")
        row = [suite, name, mode, dtype, "" if tb is None else str(tb)]
        for i in impls:
            r = rs.get(i)
            if r is None:
                row += [""] * 6
            elif r["status"] in ("error", "timeout", "eager fails"):
                row += [f"{r['status']}: {str(r.get('error', ''))[:80]}".replace("|", "/").replace("\n", " ")] + [
                    ""
                ] * 5
            else:
                worst = max((e["compiled"] for e in r["errors"].values() if e["compiled"] is not None), default=0.0)
                sec = r.get("seconds", {}).get(i)
                row += [
                    r["status"],
                    f"{r['graphs']}/{r['breaks']}",
                    f"{r['first_call_s']:.2f}" if "first_call_s" in r else "",
                    f"{sec * 1e3:.2f}" if sec else "",
                    f"{r['speedup']:.2f}" if r.get("speedup") else "",
                    f"{worst:.1e}",
                ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def side_by_side(results: list[dict], ours: str = "lamina", theirs: str = "torch") -> str:
    """A table of the programs that both compilers ran in one run: steady state against each one's own eager, first
    calls with an empty cache and in a second process, and the geometric means. Empty if there are none.
    """
    by: dict[tuple, dict[tuple, dict]] = defaultdict(dict)
    for r in results:
        if r.get("seconds") and r["status"] in ("ok", "inaccurate"):
            by[(r["name"], r["mode"], r["dtype"])][(r["impl"], r.get("cache", "cold"))] = r
    rows, ratios, common = [], defaultdict(list), []
    for (name, mode, dtype), found in sorted(by.items()):
        us, them = found.get((ours, "cold")), found.get((theirs, "cold"))
        if us is None or them is None or not us.get("speedup") or not them.get("speedup"):
            continue
        against = us["speedup"] / them["speedup"]
        row = [name, mode, dtype]
        row += [
            f"{us['seconds'][ours] * 1e3:.3f} of {us['seconds']['eager'] * 1e3:.3f}",
            f"{them['seconds'][theirs] * 1e3:.3f} of {them['seconds']['eager'] * 1e3:.3f}",
            f"{us['speedup']:.2f}",
            f"{them['speedup']:.2f}",
            f"**{against:.2f}**" if against < 1 else f"{against:.2f}",
        ]
        common += [us, them]
        ratios["eager"].append(us["speedup"])
        ratios["theirs over eager"].append(them["speedup"])
        ratios["steady"].append(against)
        for state in ("cold", "warm"):
            a, b = found.get((ours, state)), found.get((theirs, state))
            if a and b and a.get("first_call_s") and b.get("first_call_s"):
                row += [f"{a['first_call_s']:.2f}", f"{b['first_call_s']:.2f}"]
                ratios[state].append(b["first_call_s"] / a["first_call_s"])
            else:
                row += ["", ""]
        rows.append([*row, us["status"], them["status"]])
    if not rows:
        return ""
    head = [
        "program",
        "mode",
        "precision",
        f"{ours} of eager ms",
        f"{theirs} of eager ms",
        f"{ours} over eager",
        f"{theirs} over eager",
        f"{ours} over {theirs}",
        f"first call s, {ours}",
        theirs,
        f"second process s, {ours}",
        theirs,
        f"accuracy, {ours}",
        theirs,
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += [
        "",
        f"Geometric means over {len(rows)} rows: {geomean(ratios['eager']):.2f}× eager ({theirs} "
        f"{geomean(ratios['theirs over eager']):.2f}×), {geomean(ratios['steady']):.2f}× {theirs}, smallest "
        f"{min(ratios['steady']):.2f}×; {sum(r < 1 for r in ratios['steady'])} rows behind {theirs} (bold), "
        f"{sum(r < 1 for r in ratios['eager'])} behind eager.",
    ]
    for mode, figure in weighted_figure(common, ours).items():
        other = weighted_figure(common, theirs).get(mode)
        if other is not None:
            lines.append(f"Weighted figure of these rows, {mode}: {ours} {figure:.2f}, {theirs} {other:.2f}.")
    for mine, other in ((ours, theirs), (theirs, ours)):
        good = {(r["name"], r["mode"], r["dtype"]) for r in results if r["impl"] == other and r["status"] == "ok"}
        lost = {f"{r['name']} {r['mode']} {r['dtype']} ({r['status']})" for r in results if r["impl"] == mine
                and r["status"] not in ("ok", "eager fails") and (r["name"], r["mode"], r["dtype"]) in good}
        if lost:
            lines.append(f"Right with {other} and not with {mine}: {', '.join(sorted(lost))}.")
    for state, what in (("cold", "First calls, empty cache"), ("warm", "First calls of a second process")):
        if ratios[state]:
            lines.append(
                f"{what}: {geomean(ratios[state]):.1f} times shorter than {theirs}'s "
                f"(least {min(ratios[state]):.1f}, most {max(ratios[state]):.1f})."
            )
    return "\n".join(lines) + "\n"


def plots(results: list[dict], stem: pathlib.Path) -> list[pathlib.Path]:
    """Speed-up a model, its distribution, first-call seconds, resident memory: one PNG each. Returns the files
    written.
    """
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    files = []
    all_good = [r for r in results if r["status"] == "ok" and r["impl"] != "eager"]
    good = [r for r in all_good if r.get("cache", "cold") == "cold"]
    impls = sorted({r["impl"] for r in good})

    def save(fig, what: str) -> None:
        path = stem.with_name(f"{stem.name}_{what}.png")
        fig.tight_layout()
        fig.savefig(path, dpi=110)
        plt.close(fig)
        files.append(path)

    timed = [r for r in good if r.get("speedup")]
    if timed:
        labels = sorted({f"{r['name']} {r['mode']}{' amp' if r['dtype'] == 'amp' else ''}" for r in timed})
        if len(labels) <= MOST_LABELS:  # beyond, nobody can read it, and the table says it
            fig, ax = plt.subplots(figsize=(10, max(3, 0.16 * len(labels))))
            for i in impls:
                vals = {
                    f"{r['name']} {r['mode']}{' amp' if r['dtype'] == 'amp' else ''}": r["speedup"]
                    for r in timed
                    if r["impl"] == i
                }
                ax.plot([vals.get(k, float("nan")) for k in labels], range(len(labels)), "o", ms=3, label=i)
            ax.axvline(1.0, color="grey", lw=0.8)
            ax.set_yticks(range(len(labels)), labels, fontsize=5)
            ax.set_xscale("log")
            ax.set_xlabel("speed-up over eager")
            ax.legend()
            save(fig, "speedup")
        fig, ax = plt.subplots(figsize=(6, 4))
        for i in impls:
            xs = sorted(r["speedup"] for r in timed if r["impl"] == i)
            ax.step(xs, [(k + 1) / len(xs) for k in range(len(xs))], label=i)
        ax.set_xlabel("speed-up over eager")
        ax.set_ylabel("share of runs at or below")
        ax.axvline(1.0, color="grey", lw=0.8)
        ax.legend()
        save(fig, "distribution")
    for field, what, label in (
        ("first_call_s", "first_call", "seconds of the first call"),
        ("max_rss_kib", "memory", "resident memory, KiB"),
    ):
        if any(r.get(field) for r in good):
            fig, ax = plt.subplots(figsize=(6, 4))
            for i, color in zip(impls, ("C0", "C1", "C2", "C3")):
                for state, line in (("cold", "-"), ("warm", "--")):
                    xs = sorted(
                        r[field] for r in all_good
                        if r["impl"] == i and r.get("cache", "cold") == state and r.get(field)
                    )
                    if xs and (state == "cold" or what == "first_call"):
                        title = f"{i}, {'empty cache' if state == 'cold' else 'second process'}"
                        ax.plot(range(len(xs)), xs, line, color=color, label=title if what == "first_call" else i)
            ax.set_yscale("log")
            ax.set_xlabel("runs, sorted")
            ax.set_ylabel(label)
            ax.legend()
            save(fig, what)
    return files


def write(results: list[dict], stem: pathlib.Path, note: str = "") -> None:
    """Write ``stem.md``, with a note below its head, and the plots beside it."""
    if not results:
        return
    both = side_by_side(results)
    stem.with_suffix(".md").write_text(table(results, note) + (f"\n## Side by side\n\n{both}" if both else ""))
    plots(results, stem)
