"""Write docs/api.md from the docstrings of the public names: `python docs/write_api.py`; `--check` only compares.

What is public is what a package lists in `__all__`. A test runs `--check`, so that the page cannot grow old.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import pathlib
import re
import sys
from typing import Any

PAGE = pathlib.Path(__file__).with_name("api.md")
PACKAGES = ("lamina", "lamina_dynamo", "lamina_aot_autograd", "lamina_primtorch", "lamina_inductor")


def signature(value: Any) -> str:
    """Return the parameters of a callable as text, or nothing where there are none to show."""
    if inspect.isclass(value) and (issubclass(value, BaseException) or issubclass(value, tuple)):
        return ""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations are strings here
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def described(value: Any) -> str:
    """Return the docstring of a function, class or module; nothing for plain values, whose class has the docstring."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
        return ""
    if inspect.isclass(value) and value.__doc__ is None:
        return ""
    if dataclasses.is_dataclass(value) and (value.__doc__ or "").startswith(f"{value.__name__}("):
        return ""
    return inspect.getdoc(value) or ""


def methods(value: type) -> list[str]:
    """Return lines about the public methods and properties that a class defines itself."""
    lines = []
    for name, member in sorted(vars(value).items()):
        if name.startswith("_") or issubclass(value, tuple):
            continue
        plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        text = inspect.getdoc(plain) if callable(plain) or isinstance(plain, property) else None
        if text:
            shown = signature(plain) if callable(plain) else ""
            lines.append(f"- `{name}{shown}`: {' '.join(text.split())}")
    return lines


def settings(package: str) -> list[str]:
    """Return the table of a package's settings, if it has any."""
    config = importlib.import_module(f"{package}.config").Config
    where = f"{package}.config"
    lines = ["### Settings", "", f"Fields of `{where}.Config`, changed for a block by `{where}.patch`.", "",
             "| field | default | environment | in the cache key | what it does |", "|---|---|---|---|---|"]
    for field in dataclasses.fields(config):
        default = "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        env, doc = field.metadata.get("env") or "", str(field.metadata.get("doc", "")).replace("|", "\\|")
        key = "yes" if field.metadata.get("key") or field.metadata.get("in_cache_key") else ""
        lines.append(f"| `{field.name}` | {default} | {f'`{env}`' if env else ''} | {key} | {doc} |")
    return [*lines, ""]


def page() -> str:
    """Return the whole page."""
    lines = ["# API", "", "Made from the docstrings by `python docs/write_api.py`; do not edit.", ""]
    for package in PACKAGES:
        module = importlib.import_module(package)
        lines += [f"## {package}", "", inspect.getdoc(module) or "", ""]
        for name in sorted(module.__all__, key=str.lower):
            value = getattr(module, name)
            if name == "__version__":
                continue
            lines += [f"### `{package}.{name}{signature(value)}`", ""]
            text = described(value)
            if text:
                lines += [text if "\n\n" not in text and "\n" not in text else f"```text\n{text}\n```", ""]
            if inspect.isclass(value) and methods(value):
                lines += [*methods(value), ""]
        lines += settings(package)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page, or tell with exit status 1 where it differs."""
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return 0
    old = PAGE.read_text() if PAGE.exists() else ""
    changes = difflib.unified_diff(old.splitlines(True), text.splitlines(True), "docs/api.md", "docstrings")
    sys.stdout.writelines(changes)
    return int(old != text)


if __name__ == "__main__":
    sys.exit(main())
