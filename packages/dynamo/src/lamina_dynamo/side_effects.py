"""What the traced region changes outside itself, and how generated code makes it happen.

Trackers are mutated while the frame is translated; this module remembers which existing objects differ from their
trackers.  At the end of the region (normal end, graph break, exception leaving the frame) generated code

1. brings every changed existing object to its tracker's state; new objects that are still reachable are made on first
   use, empty, and filled afterwards, so that cycles and aliases come out right,
2. repeats calls whose effect is on the outside world (print, logging) in program order.
"""

from __future__ import annotations

import operator
from typing import Any

from .variables.attributes import DELETED
from .variables.base import VariableTracker


class SideEffects:
    """The record of one translation."""

    def __init__(self, output: Any = None):
        self.output = output
        #: existing objects whose tracker differs from them, in order of the first change
        self.modified: dict[VariableTracker, None] = {}
        #: class -> attributes stored on it (whole namespace for classes made inside)
        self.class_attrs: dict[type, dict[str, Any]] = {}
        #: stand-in class -> its ClassVariable
        self.made_classes: dict[type, VariableTracker] = {}
        #: (id of globals dict, name) -> (globals dict, tracker or DELETED, module tracker or None)
        self.global_stores: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}
        #: calls to repeat after the graph: (callable, arguments, keyword arguments)
        self.calls: list[tuple[Any, list[VariableTracker], dict[str, VariableTracker]]] = []
        #: new objects whose contents are still to be emitted (during codegen)
        self.pending_fill: list[Any] = []
        #: whether `drain` is at work
        self.draining = False
        self._cyclic: set[int] = set()
        self.changes = 0

    # -- recording ----------------------------------------------------------------------------------------------

    def mutation(self, vt: VariableTracker) -> None:
        """Called before the contents of `vt` change."""
        owner = getattr(vt, "owner", None)
        if vt.source is not None or owner is not None and owner.source is not None:
            if vt in self.output.walked_members:
                from .variables.module_walk import note_change

                note_change(self.output)
            self.changes += 1
            self.modified.setdefault(vt, None)

    def state_of_changes(self) -> tuple[int, ...]:
        """Grows with each change that the program makes to something that exists already."""
        drawn = len(self.output.draws_before)
        return (self.changes, len(self.global_stores), len(self.calls), len(self.class_attrs), drawn)

    def is_modified(self, vt: VariableTracker) -> bool:
        return vt in self.modified

    def record_call(self, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        """A call with an effect on the outside world, to be made by generated code."""
        self.calls.append((fn, args, kwargs))

    def is_empty(self) -> bool:
        return not (self.modified or self.global_stores or self.calls)

    # -- cells --------------------------------------------------------------------------------------------------

    def load_cell(self, cell: Any) -> VariableTracker | None:
        """What a cell holds; None if it is empty."""
        cell = cell.realize()
        if cell.contents is not None or cell.real is None:
            return None if cell.contents is DELETED else cell.contents
        try:
            value = cell.real.cell_contents
        except ValueError:
            if cell.source is not None:
                self.output.guard(cell.source, "EMPTY_CELL", None)
            return None
        from .variables.builder import wrap_lazy

        source = None
        if cell.source is not None:
            from .source import CellContentsSource

            source = CellContentsSource(cell.source)
        cell.contents = wrap_lazy(self.output.current_tx, value, source)
        return cell.contents

    def store_cell(self, cell: Any, value: VariableTracker) -> None:
        cell = cell.realize()
        self.mutation(cell)
        cell.contents = value
        cell.is_empty = False

    def delete_cell(self, cell: Any) -> None:
        cell = cell.realize()
        self.mutation(cell)
        cell.contents = DELETED if cell.real is not None else None
        cell.is_empty = True

    # -- globals ------------------------------------------------------------------------------------------------

    def load_global_of(self, globals_dict: dict[str, Any], name: str) -> Any:
        """A global stored by the region: tracker, DELETED, or None if the region did not touch it."""
        entry = self.global_stores.get((id(globals_dict), name))
        return None if entry is None else entry[1]

    def store_global_of(self, globals_dict: dict[str, Any], name: str, value: Any, module: Any = None) -> None:
        self.global_stores[(id(globals_dict), name)] = (globals_dict, value)

    def load_global(self, tx: Any, name: str) -> Any:
        return self.load_global_of(tx.f_globals, name)

    def store_global(self, tx: Any, name: str, value: VariableTracker) -> None:
        self.store_global_of(tx.f_globals, name, value)

    def delete_global(self, tx: Any, name: str) -> None:
        known = self.load_global_of(tx.f_globals, name)
        exists = name in tx.f_globals
        if known is DELETED or known is None and not exists:
            if known is None:
                self.output.guard(tx.globals_dict_source(), "DICT_NOT_CONTAINS", name)
            tx.raise_exception(NameError, f"name '{name}' is not defined")
        if exists:
            self.store_global_of(tx.f_globals, name, DELETED)
        else:
            del self.global_stores[(id(tx.f_globals), name)]  # the region made it

    # -- replay -------------------------------------------------------------------------------------------------

    def is_cyclic(self, vt: VariableTracker) -> bool:
        """Whether the new container refers to itself, so that it must be made empty first."""
        return id(vt) in self._cyclic

    def codegen(self, cg: Any, live: Any = ()) -> None:
        """Emits the replay; `live`: what the caller pushes afterwards.  New objects: see `drain`."""
        for vt in list(self.modified):
            self._replay_one(cg, vt)
        for (_, name), (globals_dict, value) in self.global_stores.items():
            self._replay_global(cg, globals_dict, name, value)
        for fn, args, kwargs in self.calls:
            cg.push_function(fn)
            for arg in args:
                cg(arg)
            for arg in kwargs.values():
                cg(arg)
            cg.call_kw(len(args) + len(kwargs), tuple(kwargs))
            cg.pop()

    def _replay_one(self, cg: Any, vt: Any) -> None:
        from .variables.cells import CellVariable, clear_cell, set_cell

        if isinstance(vt, CellVariable):
            cg.push_function(clear_cell if vt.is_empty else set_cell)
            cg(vt)
            if not vt.is_empty:
                cg(vt.contents)
            cg.call_function(1 if vt.is_empty else 2)
            cg.pop()
            return
        owner = getattr(vt, "owner", None)
        if owner is not None:
            vt.replay_into(cg, owner)
            return
        replay = getattr(vt, "replay", None) or vt.fill
        replay(cg)

    def _replay_global(self, cg: Any, globals_dict: dict[str, Any], name: str, value: Any) -> None:
        deleting = value is DELETED
        cg.push_function(operator.delitem if deleting else operator.setitem)
        cg.push_globals(globals_dict)
        cg.load_const(name)
        if not deleting:
            cg(value)
        cg.call_function(2 if deleting else 3)
        cg.pop()

    def drain(self, cg: Any) -> None:
        """Fills the new objects made so far; filling may make more.  Leaves the stack as it is."""
        from .variables.user_class import ClassVariable

        outer, self.draining = self.draining, True
        try:
            while self.pending_fill:
                vt = self.pending_fill.pop(0)
                if isinstance(vt, ClassVariable):
                    vt.made.fill(cg, vt)  # type: ignore[union-attr]
                else:
                    vt.fill(cg)
        finally:
            self.draining = outer

    # -- the graph of new objects ---------------------------------------------------------------------------------

    def find_cycles(self, roots: list[VariableTracker]) -> None:
        """Marks the new containers that lie on a cycle (iterative depth-first search)."""
        state: dict[int, int] = {}
        for root in roots:
            if root is None or id(root) in state:
                continue
            path: list[tuple[VariableTracker, Any]] = [(root, iter(list(root.children())))]
            state[id(root)] = 1
            while path:
                vt, children = path[-1]
                child = next(children, None)
                if child is None:
                    state[id(vt)] = 2
                    path.pop()
                    continue
                if not isinstance(child, VariableTracker):
                    continue
                known = state.get(id(child))
                if known is None:
                    state[id(child)] = 1
                    path.append((child, iter([c for c in child.children() if isinstance(c, VariableTracker)])))
                elif known == 1:
                    for other, _ in reversed(path):
                        if hasattr(other, "fill"):
                            self._cyclic.add(id(other))
                        if other is child:
                            break
