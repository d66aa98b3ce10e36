"""The table of graph break kinds covers what the code raises, and the page made from it is current."""

import importlib
import re
from pathlib import Path

import pytest

module = importlib.import_module("lamina_dynamo.graph_break")
PAGE = Path(__file__).parents[4] / "docs" / "graph_breaks.md"


def test_every_kind_that_is_raised_has_a_row():
    root = Path(module.__file__).parent
    used = set()
    for file in root.rglob("*.py"):
        used |= set(re.findall(r'(?:graph_break|GraphBreak|break_graph)\(\s*"([a-z_]+)"', file.read_text()))
    assert used and used <= set(module.KINDS)


def test_page_is_current():
    if not PAGE.exists():
        pytest.skip("the package is tested without the repository")
    assert PAGE.read_text() == module.render_table()
