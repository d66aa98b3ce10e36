"""lamina.compile(model): a compiler for PyTorch programs.

The names below are imported when they are first used, so that `import lamina` costs next to nothing above torch.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from .__about__ import __version__
from .compile import compile as compile  # at once: the submodule has the same name as the function

if TYPE_CHECKING:
    from lamina_dynamo import disable as disable
    from lamina_dynamo import is_compiling as is_compiling

    from . import config as config
    from .accuracy import check as check
    from .backends import list_backends as list_backends
    from .bisection import bisect as bisect
    from .cache import load_cache as load_cache
    from .cache import save_cache as save_cache
    from .errors import CheckError as CheckError
    from .errors import CompileError as CompileError
    from .errors import CompileWarning as CompileWarning
    from .errors import OptionError as OptionError
    from .explanation import explain as explain
    from .minifier import minify as minify
    from .options import list_modes as list_modes

# name -> module that has it. Names of lamina_dynamo are its very objects, so that capture recognises them.
_HOME = {
    "config": ".config",
    "list_modes": ".options",
    "list_backends": ".backends",
    "CompileError": ".errors",
    "CompileWarning": ".errors",
    "OptionError": ".errors",
    "CheckError": ".errors",
    "explain": ".explanation",
    "check": ".accuracy",
    "bisect": ".bisection",
    "minify": ".minifier",
    "save_cache": ".cache",
    "load_cache": ".cache",
    "disable": "lamina_dynamo",
    "is_compiling": "lamina_dynamo",
    "graph_break": "lamina_dynamo",
    "mark_dynamic": "lamina_dynamo",
    "mark_static": "lamina_dynamo",
    "counters": "lamina_dynamo",
}
_MODULES = {"config"}

__all__ = ["__version__", "compile", "reset", *_HOME]


def reset() -> None:
    """Forget everything that was compiled in this process; compiled callables stay usable and compile anew."""
    from . import failures
    from .pipeline import import_stage

    import_stage("capture").reset()
    failures.forget()


def _load_capture_names() -> None:
    """Put the names of lamina_dynamo into this module at once: code under capture looks them up without __getattr__."""
    for name, home in _HOME.items():
        if home == "lamina_dynamo" and name not in globals():
            getattr(sys.modules[__name__], name)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'lamina' has no attribute {name!r}")
    module = importlib.import_module(home, __name__)
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
