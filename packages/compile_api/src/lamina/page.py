"""The HTML page of an explanation: one file, no scripts from elsewhere, readable with scripts switched off."""

from __future__ import annotations

import re
from html import escape
from typing import Any

COLOURS = ["#d7ecff", "#dcf5dd", "#fdeccf", "#efe1fb", "#fde0e4", "#daf3f1", "#f3f0c7", "#e6e6e6"]
CONTEXT = 4
_STYLE = """
:root{color-scheme:light}body{font:15px/1.5 system-ui,sans-serif;margin:0;color:#1c2733;background:#f6f7f9}
header{background:#16324f;color:#fff;padding:20px 32px}header h1{margin:0;font-size:22px;font-weight:600}
main{max-width:1150px;margin:0 auto;padding:16px 32px 60px}
.cards{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0 20px}
.card{background:#fff;border:1px solid #dde2e8;border-radius:8px;padding:8px 16px;min-width:82px}
.card b{display:block;font-size:22px;line-height:1.2}.card.bad b{color:#b3261e}
section{background:#fff;border:1px solid #dde2e8;border-radius:8px;margin:14px 0;padding:12px 18px}
h2{font-size:16px;margin:2px 0 8px}details{margin:6px 0}summary{cursor:pointer;font-weight:500}
pre{font:12.5px/1.45 ui-monospace,Menlo,Consolas,monospace;overflow-x:auto;margin:6px 0;padding:8px;background:#f6f8fa;
border-radius:6px}
.src{padding:6px 0}.src div{padding:0 10px;white-space:pre}.src .no{color:#8a94a0;display:inline-block;width:48px}
.src .tag{float:right;color:#4b5a68;font-size:11px}.brk{box-shadow:inset 4px 0 #b3261e}
.why{color:#b3261e;white-space:normal!important;padding-left:62px!important}
table{border-collapse:collapse}td,th{text-align:left;padding:3px 14px 3px 0;vertical-align:top}
.bar{background:#4a90d9;height:11px;border-radius:3px;display:inline-block;min-width:2px}
.none{color:#6b7785}.hint{color:#37506a}
"""


def page_of(e: Any) -> str:
    """Return the page for an Explanation."""
    worrying = ("graph breaks", "fallbacks", "recompiles")
    cards = "".join(
        f'<div class="card{" bad" if n and k in worrying else ""}"><b>{n}</b>{k}</div>' for k, n in e.counts().items()
    )
    parts = [
        _error(e), _source(e), _breaks(e), _graphs(e),
        _listing("Guards", e.guards, "what must hold for reuse"),
        _listing("Recompiles", e.recompiles, "None in this run."), _joint(e),
        _listing("Fusions, made and refused", e.fusions, "none reported"), _kernels(e),
        _listing("Called, not generated", e.externs, "nothing"),
        _listing("Handed back to eager", e.fallbacks, "nothing"), _seconds(e),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>lamina: {escape(e.title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<header><h1>What lamina made of {escape(e.title)}</h1></header><main>"
        f'<div class="cards">{cards}</div>{"".join(parts)}</main></body></html>'
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _error(e: Any) -> str:
    if e.recording.error is None:
        return ""
    text = f"{type(e.recording.error).__name__}: {e.recording.error}"
    return _section("The run raised", f"<pre>{escape(text)}</pre>")


def _break_lines(e: Any) -> dict[tuple[str, int], list[Any]]:
    found: dict[tuple[str, int], list[Any]] = {}
    for b in e.breaks:
        match = re.match(r'\s*(?:File ")?([^":]+)"?(?::|, line )(\d+)', b.line)
        if match:
            found.setdefault((match[1], int(match[2])), []).append(b)
    return found


def _source(e: Any) -> str:
    coloured, broken = e.source_lines(), _break_lines(e)
    if not coloured and not broken:
        return _section("Source", '<p class="none">The graphs carry no source lines.</p>')
    body = '<p class="none">Each colour is one graph; a red edge marks a graph break.</p>'
    files = sorted({*coloured, *(f for f, _ in broken)}, key=_is_library)
    for file in files:
        try:
            with open(file, encoding="utf-8") as source:
                text = source.read().splitlines()
        except OSError:
            continue
        lines = coloured.get(file, {})
        marked = {*lines, *(n for f, n in broken if f == file)}
        rows, last = [], 0
        for n in sorted({m for k in marked for m in range(k - CONTEXT, k + CONTEXT + 1) if 1 <= m <= len(text)}):
            if last and n > last + 1:
                rows.append('<div class="none">      …</div>')
            last = n
            numbers = lines.get(n, [])
            style = f' style="background:{COLOURS[numbers[0] % len(COLOURS)]}"' if numbers else ""
            tag = f'<span class="tag">graph {", ".join(map(str, numbers))}</span>' if numbers else ""
            here = broken.get((file, n), [])
            rows.append(f'<div class="{"brk" if here else ""}"{style}>{tag}<span class="no">{n}</span>'
                        f"{escape(text[n - 1]) or ' '}</div>")
            rows += [f'<div class="why">graph break ({escape(b.kind)}): {escape(b.reason)}. {escape(b.hint)}</div>'
                     for b in here]
        opened = "" if _is_library(file) else " open"
        body += f'<details{opened}><summary>{escape(file)}</summary><pre class="src">{"".join(rows)}</pre></details>'
    return _section("Source", body)


def _is_library(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file


def _breaks(e: Any) -> str:
    if not e.breaks:
        return _section("Graph breaks", '<p class="none">None: the program is one graph for each call.</p>')
    times = {id(b): f"<br>in {b.times} compiles" if b.times > 1 else "" for b in e.breaks}
    rows = "".join(
        f"<tr><td><b>{escape(b.kind)}</b>{times[id(b)]}</td><td>{escape(b.reason)}<pre>{escape(b.line)}</pre>"
        f'<span class="hint">{escape(b.hint)}</span></td></tr>' for b in e.breaks
    )
    return _section("Graph breaks", f"<table>{rows}</table>")


def _graphs(e: Any) -> str:
    from .explanation import count_operations
    from .logs import readable

    body = "".join(
        f'<details><summary><span style="background:{COLOURS[i % len(COLOURS)]}">&nbsp;graph {i}&nbsp;</span> '
        f"{count_operations(g)} operations, {len(g.inputs)} inputs</summary>"
        f"<pre>{escape(readable(g.gm.code))}</pre></details>"
        for i, g in enumerate(e.graphs)
    )
    return _section("Captured graphs", body or '<p class="none">none</p>')


def _joint(e: Any) -> str:
    body = "".join(
        f"<details><summary>{escape(t.partition(chr(10))[0])}</summary><pre>{escape(t.partition(chr(10))[2])}</pre></details>"
        for t in e.joint
    )
    body += "".join(f"<pre>{escape(s)}</pre>" for s in e.saved)
    return _section("Forward and backward", body) if body else ""


def _kernels(e: Any) -> str:
    body = "".join(f"<details><summary>{escape(name)}</summary><pre>{escape(source)}</pre></details>"
                   for name, source in e.kernels)
    body += "".join(f"<details><summary>generated code, graph {i}</summary><pre>{escape(source)}</pre></details>"
                    for i, source in enumerate(e.code))
    return _section("Kernels", body or '<p class="none">none generated in this run</p>')


def _listing(title: str, entries: list[str], none: str) -> str:
    if not entries:
        return _section(title, f'<p class="none">{escape(none)}</p>')
    inside = "".join(f"<div>{escape(t)}</div>" for t in entries)
    if len(entries) > 12:
        return _section(title, f"<details><summary>{len(entries)} entries</summary><pre>{inside}</pre></details>")
    return _section(title, f"<pre>{inside}</pre>")


def _seconds(e: Any) -> str:
    longest = max(e.seconds.values(), default=0.0) or 1.0
    rows = "".join(
        f"<tr><td>{escape(k)}</td><td>{v:.3f} s</td>"
        f'<td><span class="bar" style="width:{v / longest * 400:.0f}px"></span></td></tr>'
        for k, v in e.seconds.items()
    )
    return _section("Seconds of each stage, without those inside it", f"<table>{rows}</table>")
