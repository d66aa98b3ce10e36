"""What the arguments of `lamina.compile` mean: modes, options, and the error for anything else.

A mode is a row of `MODES`: values for options. An option is named after a field of a layer's config, alone
("freezing") or with the layer in front ("inductor.freezing", "aot.partitioner").
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import OptionError, unknown

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"max_autotune": True, "cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}
LAYERS = {"inductor": "lamina_inductor", "aot": "lamina_aot_autograd", "dynamo": "lamina_dynamo"}
# Options of the pipeline itself: name -> what it does.
OWN_OPTIONS = {
    "target": "inductor's target by name instead of by device: cpp, triton, reference or a registered one",
    "freezing": "inference only: parameters and buffers become constants, batch norms are folded, weights are packed; "
    "when one is replaced or written to, the graph is compiled again without freezing",
    "partitioner": "name or callable of the partitioner that aot_autograd uses: default, min_cut, save_everything",
}


@dataclass(frozen=True)
class CompileOptions:
    """The checked arguments of one `lamina.compile` call."""

    mode: str = "default"
    dynamic: bool | None = None
    fullgraph: bool = False
    backend: str | Callable[..., Any] = "inductor"
    options: Mapping[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that make the same `lamina.compile` call again."""
        return {f.name: (dict(self.options) or None) if f.name == "options" else getattr(self, f.name)
                for f in fields(self)}

    def values(self) -> dict[str, Any]:
        """Return the mode's options overlaid by the explicit ones."""
        return {**MODES[self.mode], **self.options}


def list_modes() -> dict[str, dict[str, Any]]:
    """Return mode name -> the options that it sets."""
    return {name: dict(values) for name, values in MODES.items()}


def layer_fields(layer: str) -> dict[str, Any]:
    """Return field name -> default of a layer's config dataclass; empty if the layer has none."""
    try:
        module = importlib.import_module(f"{LAYERS[layer]}.config")
    except ImportError:
        return {}
    config = getattr(module, "Config", None)
    return {} if config is None else {f.name: f.default for f in fields(config)}


def check_arguments(mode: Any, dynamic: Any, fullgraph: Any, backend: Any, options: Any) -> CompileOptions:
    """Check the arguments of `lamina.compile`; OptionError names the wrong one and what it takes."""
    if mode is None:
        mode = "default"
    if not isinstance(mode, str) or mode not in MODES:
        raise unknown("mode", mode, MODES)
    if dynamic not in (None, True, False):
        raise OptionError(f"dynamic must be None, True or False, not {dynamic!r}")
    if fullgraph not in (True, False):
        raise OptionError(f"fullgraph must be True or False, not {fullgraph!r}")
    if isinstance(backend, str):
        from .backends import is_known, list_backends

        if not is_known(backend):
            raise unknown("backend", backend, list_backends(),
                          hint='register one by the entry point group "lamina.backends", or pass a callable')
    elif not callable(backend):
        raise OptionError(f"backend must be a name or a callable, not {type(backend).__name__}")
    if options is None:
        options = {}
    if not isinstance(options, Mapping):
        raise OptionError(f"options must be a dict, not {type(options).__name__}")
    for name in options:
        check_option(name)
    return CompileOptions(mode, dynamic, bool(fullgraph), backend, dict(options))


def check_option(name: Any) -> None:
    """Raise OptionError unless `name` is an option of the pipeline or a config field of a layer."""
    if name in OWN_OPTIONS:
        return
    layer, _, fieldname = str(name).rpartition(".")
    if fieldname in layer_fields(layer or "inductor") if (layer or "inductor") in LAYERS else False:
        return
    known = [*OWN_OPTIONS, *layer_fields("inductor")]
    known += [f"{layer}.{f}" for layer in ("aot", "dynamo") for f in layer_fields(layer)]
    raise unknown("option", name, known)


def values_for(layer: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Pick the options that are config fields of `layer`; a bare name belongs to inductor.

    A mode may name a field that the installed layer does not have; it is left out, since a mode is a wish.
    """
    have = layer_fields(layer)
    picked = {}
    for name, value in values.items():
        prefix, _, fieldname = name.rpartition(".")
        if (prefix or "inductor") == layer and fieldname in have:
            picked[fieldname] = value
    return picked
