"""What the arguments of `lamina.compile` mean: modes, options, and the error for anything else.

A mode is a row of `MODES`: values for options. An option is named after a field of a layer's config, alone
("freezing") or with the layer in front ("inductor.freezing", "aot.partitioner").
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from . import config
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
    if dynamic is not None and not isinstance(dynamic, bool):
        raise OptionError(f"dynamic must be None, True or False, not {dynamic!r}")
    if not isinstance(fullgraph, bool):
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
    for name, value in options.items():
        check_option(name, value)
    return CompileOptions(mode, dynamic, bool(fullgraph), backend, dict(options))


def settings_of(tool: str, options: Mapping[str, Any], **own: Any) -> CompileOptions:
    """Check what a tool was given as `**options`: arguments of `lamina.compile`, but for those that are its `own`."""
    arguments = {"mode": "default", "dynamic": None, "fullgraph": False, "backend": "inductor", "options": None}
    known = [name for name in arguments if name not in own]
    for name in options:
        if name not in known:
            raise unknown(f"argument of lamina.{tool}", name, known, hint="they mean what they mean to lamina.compile")
    return check_arguments(**{**arguments, **options, **own})


def check_model(tool: str, model: Any) -> None:
    """Raise OptionError for what cannot be called like a model."""
    if isinstance(model, type):
        raise OptionError(f"lamina.{tool} takes functions and objects, not the class {model.__name__}",
                          hint="give it an instance")
    if not callable(model):
        raise OptionError(f"lamina.{tool} takes a function, a module or another callable, not {type(model).__name__}")


def check_number(tool: str, name: str, value: Any, least: float, kind: type = float) -> None:
    """Raise OptionError unless a tool's argument is a number (an integer for kind int) not below `least`."""
    wanted = int if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted) or not value >= least:
        raise OptionError(f"{name} of lamina.{tool} takes {'an integer' if kind is int else 'a number'} of at least "
                          f"{least:g}, not {value!r}")


def check_flag(tool: str, name: str, value: Any) -> None:
    """Raise OptionError unless a tool's argument is True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} of lamina.{tool} takes True or False, not {value!r}")


def check_rungs(tool: str, backends: Any) -> list[str]:
    """Return a tool's list of backends; OptionError unless it is one of known names."""
    from .backends import is_known, list_backends

    if isinstance(backends, str) or not isinstance(backends, Sequence) or not backends:
        raise OptionError(f"backends of lamina.{tool} takes a list of names, such as ['aot_eager'], not {backends!r}")
    for name in backends:
        if not isinstance(name, str) or not is_known(name):
            raise unknown("backend", name, list_backends())
    return list(backends)


def check_option(name: Any, value: Any) -> None:
    """Raise OptionError unless `name` is an option of the pipeline or a config field of a layer, and takes `value`."""
    if name in OWN_OPTIONS:
        return _check_own_option(name, value)
    layer, _, fieldname = str(name).rpartition(".")
    have = layer_fields(layer or "inductor") if (layer or "inductor") in LAYERS else {}
    if fieldname in have:
        default = have[fieldname]
        if not config.fits(value, default):
            raise OptionError(f"option {name!r} takes {config.TAKES[type(default)]}, not {value!r}")
        if fieldname == "target" and value:
            _check_own_option("target", value)
        return
    known = [*OWN_OPTIONS, *layer_fields("inductor")]
    known += [f"{layer}.{f}" for layer in ("aot", "dynamo") for f in layer_fields(layer)]
    raise unknown("option", name, known)


def _check_own_option(name: str, value: Any) -> None:
    """Raise OptionError unless the pipeline's option takes this value."""
    if name == "freezing":
        if not isinstance(value, bool):
            raise OptionError(f"option 'freezing' takes True or False, not {value!r}")
    elif value is None:
        return
    elif name == "target":
        known = importlib.import_module(LAYERS["inductor"]).list_targets()
        if not isinstance(value, str) or value not in known:
            raise unknown("target", value, known, hint="omit it to have the target of the inputs' device")
    elif not callable(value):
        known = getattr(importlib.import_module(LAYERS["aot"]), "PARTITIONERS", {})
        if not isinstance(value, str) or value not in known:
            raise unknown("partitioner", value, known, hint="or a function from a JointGraph to a Partition")


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
