"""The HTML page of a capture: no scripts or styles from elsewhere."""

from __future__ import annotations

import html
import linecache
from typing import Any

__all__ = ["page"]

_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222; max-width: 110em }
pre, code { font: 12px ui-monospace, monospace } pre { background: #f7f7f7; padding: .6em; overflow-x: auto }
table.src { border-collapse: collapse; font: 12px ui-monospace, monospace; width: 100% } table.src td { padding: 0
.6em; white-space: pre }
td.n { color: #999; text-align: right; width: 4em } tr.broken td { background: #fdd } .hint { color: #555;
font-style: italic } summary { cursor: pointer }
"""


def _colour(number: int) -> str:
    return f"hsl({(number * 67 + 110) % 360} 70% 90%)"


def page(record: Any) -> str:
    """A complete HTML document for a `Capture`."""
    parts = [
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>Capture</title><style>",
        _STYLE,
        "</style></head><body>",
        f"<h1>{len(record.graphs)} graphs, {len(record.breaks)} graph breaks, {len(record.guards)} guards</h1>",
    ]
    if record.error is not None:
        parts.append(f"<p>The call raised <code>{_text(type(record.error).__name__)}: {_text(record.error)}</code></p>")
    parts.append(_sources(record))
    for broken in record.breaks:
        parts.append(
            f"<h3>Graph break: {_text(broken.kind)}</h3><p>{_text(broken.message)}</p>"
            f"<pre>{_text(broken.user_line)}</pre><p class='hint'>{_text(broken.hint)}</p>"
        )
    for line in record.recompiles:
        parts.append(f"<h3>Recompile</h3><pre>{_text(line)}</pre>")
    for frame in record.frames:
        parts.append(f"<h2>Frame {_text(frame.name)}</h2>")
        if frame.skipped:
            parts.append(f"<p>Runs as it is: {_text(frame.skipped)}</p>")
        for graph in frame.graphs:
            parts.append(
                f"<h3 style='background:{_colour(graph.number)}'>Graph {graph.number}</h3>"
                f"<pre>{_text(chr(10).join(graph.inputs))}</pre>"
            )
            parts.append(f"<pre>{_text(graph.gm.graph)}</pre>")
        parts.append(_fold(f"{len(frame.guards)} guards", "\n".join(frame.guards)))
        parts.append(_fold("bytecode before", frame.bytecode_before()))
        if frame.new_code is not None:
            parts.append(_fold("bytecode after", frame.bytecode_after()))
    parts.append("</body></html>")
    return "".join(parts)


def _text(value: Any) -> str:
    return html.escape(str(value))


def _fold(title: str, body: str) -> str:
    return f"<details><summary>{_text(title)}</summary><pre>{_text(body)}</pre></details>"


def _sources(record: Any) -> str:
    """Source of every function that takes part, lines coloured by the graph they went into, lines that broke one
    marked.
    """
    where = record.source_map()
    broken = {b.place: b for b in record.breaks if b.place}
    ranges: dict[str, set[int]] = {}
    for frame in record.frames:
        lines = (
            [line for _, _, line in frame.code.co_lines() if line]
            if hasattr(frame.code, "co_lines")
            else [frame.code.co_firstlineno]
        )
        ranges.setdefault(frame.code.co_filename, set()).update(range(min(lines), max(lines) + 1))
    for file, line in [*where, *broken]:
        ranges.setdefault(file, set()).add(line)
    parts = []
    for file, lines in ranges.items():
        rows = []
        previous = None
        for line in sorted(lines):
            if previous is not None and line > previous + 1:
                rows.append("<tr><td class='n'>…</td><td></td><td></td></tr>")
            previous = line
            number = where.get((file, line))
            stop = broken.get((file, line))
            style = f" style='background:{_colour(number)}'" if number is not None and stop is None else ""
            note = f"graph {number}" if number is not None else ""
            if stop is not None:
                note = f"break: {stop.kind}. {stop.hint}"
            css = " class='broken'" if stop is not None else ""
            rows.append(
                f"<tr{css}><td class='n'>{line}</td><td{style}>{_text(linecache.getline(file, line).rstrip())}</td>"
                f"<td class='hint'>{_text(note)}</td></tr>"
            )
        parts.append(f"<h2>{_text(file)}</h2><table class='src'>{''.join(rows)}</table>")
    return "".join(parts)
