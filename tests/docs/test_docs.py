"""Every Python block of the documentation runs, in order, a process a page; links and nox sessions named exist."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md"),
                *ROOT.glob("examples/**/*.md")])


def name(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> str:
    """The code of a page as one file: everything else is blanked, so that line numbers stay those of the page."""
    lines, inside = [], False
    for line in text.splitlines():
        if inside and line.strip() == "```":
            inside = False
        elif line.strip() == f"```{language}":
            inside = True
        elif inside:
            lines.append(line)
            continue
        lines.append("")
    return "\n".join(lines) + "\n"


WITH_PYTHON = [p for p in PAGES if blocks(p.read_text(), "python").strip()]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_the_code_of_the_page_runs(page, tmp_path):
    script = tmp_path / (page.stem + ".py")
    script.write_text(blocks(page.read_text(), "python"))
    env = {**os.environ, "LAMINA_STRICT": "1", "LAMINA_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=env, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_nox_sessions_that_are_named_exist(page):
    sessions = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(), re.M))
    for found in re.findall(r"nox -s ([a-z_0-9 \"(]+)", page.read_text()):
        for word in re.findall(r"[a-z0-9_]+", found.split("(")[0].split("#")[0]):
            assert word in sessions, f"{name(page)} names the session {word}"


def test_the_walkthrough_is_about_all_stages():
    text = (ROOT / "docs" / "walkthrough.md").read_text()
    for package in ("lamina_dynamo", "lamina_aot_autograd", "lamina_primtorch", "lamina_inductor"):
        assert package in text


def test_the_api_page_is_what_the_docstrings_say():
    script = ROOT / "docs" / "write_api.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run python docs/write_api.py:\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
