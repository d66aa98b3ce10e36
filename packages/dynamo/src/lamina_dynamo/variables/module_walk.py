"""``Module.modules`` and ``Module.named_modules``: one flat generator in place of a recursion of generators.

Layers ask such questions in every call (``any(... for m in self.modules())``), and following the recursion costs many
times what the question does. The modules are listed when the generator is made, by the same look-ups under the same
guards. A list made ahead is right while nobody changes the members of a module that is on it: should the region do
that, it is translated again without.
"""

from __future__ import annotations

from typing import Any

import torch

from ..translator.base import RestartTranslation
from .base import VariableTracker
from .keys import IdentityKey

NAMED_MODULES = torch.nn.Module.named_modules
MODULES = torch.nn.Module.modules
WALKS = (NAMED_MODULES, MODULES)
_DECISION = "modules are walked step by step"


def walk_modules(tx: Any, fn: Any, root: VariableTracker) -> VariableTracker | None:
    """The generator that ``fn(root)`` gives (``fn`` one of `WALKS`), or None: follow the function."""
    from ..translator import polyfills
    from .container import TupleVariable

    if tx.output.decisions.get(_DECISION):
        return None
    found: list[tuple[str, VariableTracker]] = []
    if not _list(tx, root, "", set(), found):
        return None
    if fn is MODULES:
        items = [m for _, m in found]
    else:
        items = [TupleVariable([tx.const(name), m]) for name, m in found]
    return tx.inline_real(polyfills.named_modules if fn is NAMED_MODULES else polyfills.modules, TupleVariable(items))


def _list(tx: Any, module: VariableTracker, prefix: str, seen: set[Any], found: list[Any]) -> bool:
    from .dicts import DictVariable
    from .methods import BoundMethodVariable
    from .module import ModuleVariable

    module = module.realize()
    if type(module) is not ModuleVariable:
        return False
    method = module.get_attr(tx, "named_modules").realize()
    if not isinstance(method, BoundMethodVariable) or getattr(method.fn_vt.realize(), "fn", None) is not NAMED_MODULES:
        return False
    made = IdentityKey.made
    key = module.hash_key(tx)
    IdentityKey.made = made  # only tells the modules below this one from each other
    if key in seen:
        return True
    seen.add(key)
    found.append((prefix, module))
    members = module.get_attr(tx, "_modules").realize()
    if type(members) is not DictVariable or tx.output.side_effects.is_modified(members):
        return False
    tx.output.walked_members.add(members)
    for name, child in members.pairs(tx):
        text, child = name.realize().as_python_constant(), child.realize()
        if child.is_python_constant() and child.as_python_constant() is None:
            continue
        if type(text) is not str or not _list(tx, child, f"{prefix}.{text}" if prefix else text, seen, found):
            return False
    return True


def note_change(output: Any) -> None:
    """The members of a module that was listed ahead are about to change."""
    output.decisions[_DECISION] = True
    raise RestartTranslation


__all__ = ["WALKS", "note_change", "walk_modules"]
