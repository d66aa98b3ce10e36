"""The list of models: ``models.tsv`` beside this file joined with the builders.

``models.tsv`` columns: suite, name, status, source, and torch.compile's graph breaks and graphs in inference and in
training, parameters in millions.
"""

from __future__ import annotations

import csv
import pathlib
from dataclasses import dataclass

import torch

from .. import cases
from . import huggingface, vision_packages
from .torchbench import tabular, text, vision

_WRITTEN = {**vision.BUILDERS, **text.BUILDERS, **tabular.BUILDERS}


FIXED = {"cpu": cases.CPU, "gpu": cases.GPU}


@dataclass(frozen=True)
class Entry:
    """One model of the list."""

    suite: str
    name: str
    missing: str | None
    torch_breaks: int | None
    torch_breaks_train: int | None
    params_millions: float | None

    @property
    def key(self) -> str:
        return f"{self.suite}/{self.name}"

    def build(self, small: bool, seed: int = 0) -> tuple[torch.nn.Module, tuple, dict]:
        """(module, args, kwargs), the same for the same seed. Raises KeyError for a name without builder."""
        torch.manual_seed(seed)
        name = self.name
        if self.suite in FIXED:
            return FIXED[self.suite][name]()
        if name in _WRITTEN:
            model, args = _WRITTEN[name](small)
            return vision_packages.without_dropout(model), args, {}
        vision_packages.import_torchvision()  # before transformers, which imports it if it is installed
        if name in huggingface.MODELS:
            return huggingface.build(name, small)
        if name in vision_packages.TORCHVISION or name == "functorch_dp_cifar10":
            return vision_packages.build_torchvision(name, small)
        return vision_packages.build_timm(name, small)


def _number(text_: str, kind):
    return kind(text_) if text_ else None


def load() -> list[Entry]:
    out = []
    with open(pathlib.Path(__file__).with_name("models.tsv"), newline="") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            status = row["status"]
            missing = status.split(":", 1)[1] if status.startswith("missing") else None
            out.append(
                Entry(
                    row["suite"],
                    row["name"],
                    missing,
                    _number(row["torch_breaks"], int),
                    _number(row["torch_breaks_train"], int),
                    _number(row["params_millions"], float),
                )
            )
    return out


def fixed(suite: str) -> list[Entry]:
    """The programs of ``benchmarks/cases.py`` as entries: suite "cpu" or "gpu"."""
    return [Entry(suite, name, None, 0, 0, None) for name in FIXED[suite]]


def find(key: str) -> Entry:
    """The entry with this key (``suite/name``). Raises KeyError for an unknown one."""
    suite = key.split("/", 1)[0]
    for e in fixed(suite) if suite in FIXED else load():
        if e.key == key:
            return e
    raise KeyError(f"no model {key!r}; the names are in benchmarks/models/models.tsv and benchmarks/cases.py")


def select(suite: str | None = None, only: str | None = None) -> list[Entry]:
    """Entries of one suite (None: the three of the model list) whose name holds one of the comma-separated words of
    ``only``.
    """
    words = only.split(",") if only else None
    entries = fixed(suite) if suite in FIXED else load()
    return [
        e for e in entries if (suite is None or e.suite == suite) and (words is None or any(w in e.name for w in words))
    ]
