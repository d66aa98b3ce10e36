"""What a traced run says about inputs and outputs: mutation, aliasing, differentiability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from .errors import UnsupportedError
from .schemas import InputInfo, OutputInfo, SlotRef, ViewRecipe
from .trace.tensor import TraceTensor, ViewStep

aten = torch.ops.aten


def describe_inputs(placeholders: Sequence[fx.Node], examples: Sequence[Any], groups: Sequence[Any]) -> list[InputInfo]:
    """One InputInfo per placeholder, before the run."""
    infos = []
    for node, example in zip(placeholders, examples, strict=True):
        if isinstance(example, torch.Tensor):
            infos.append(InputInfo(True, example.requires_grad, example.is_leaf, name=str(node.target)))
        else:
            infos.append(InputInfo(False, name=str(node.target)))
    return infos


def mutation_of(
    infos: list[InputInfo], groups: Sequence[Any], mutated: list[int], roots: list[Any], start_grad_fn: dict[int, Any]
) -> None:
    """Fill in what the run wrote. `mutated` holds forward-input positions; members of a group share their base's
    record."""
    grouped = {i for group in groups for i in group.members}
    order = [i for i in range(len(infos)) if i not in grouped]
    for position in mutated:
        root = roots[position]
        under_no_grad = root.grad_fn is start_grad_fn.get(position)
        if position < len(order):
            members: Sequence[int] = (order[position],)
        else:
            members = groups[position - len(order)].members
        for i in members:
            infos[i].mutates_data = True
            infos[i].under_no_grad = under_no_grad
            infos[i].version_bumps = root._version if not root.is_inference() else root._s.gen


def recipe_of(step: ViewStep | None, slots: list[Any]) -> tuple[ViewRecipe, ...]:
    """The chain of views that leads from a root to `step`. Symbolic numbers become outputs of the graph (`slots`)."""
    recipe: list[ViewRecipe] = []

    def number(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            slots.append(value)
            return SlotRef(len(slots) - 1)
        if isinstance(value, (list, tuple)):
            return type(value)([number(v) for v in value])
        return value

    while step is not None:
        func = torch.Tensor.data.__get__ if step.own_counter else step.func  # type: ignore[attr-defined]
        recipe.append(ViewRecipe(func, number(step.args), step.kwargs, step.index, step.grad_mode))
        step = step.parent
    recipe.reverse()
    return tuple(_without_pending_conjugation(recipe))


def _without_pending_conjugation(recipe: list[ViewRecipe]) -> list[ViewRecipe]:
    """The chain with the real and imaginary parts of a conjugated tensor read as eager does: from the tensor itself,
    the imaginary part negated. Traced values carry no pending conjugation, the real tensors of a replay do.
    """
    out: list[ViewRecipe] = []
    pending = -1
    for step in recipe:
        if step.func is aten._conj.default:
            pending = len(out) if pending < 0 else -1
            if pending < 0:
                out = [s for s in out if s.func is not aten._conj.default]
                continue
        elif step.func is aten.view_as_real.default and pending >= 0:
            del out[pending]
        elif pending >= 0 and out and out[-1].func is aten.view_as_real.default:
            if step.func is not aten.select.int:
                raise UnsupportedError("a real view of a conjugated tensor")
            out.append(step)
            if step.args[1] == 1:
                out.append(ViewRecipe(aten._neg_view.default, (), {}, -1, step.grad_mode))
            pending = -1
            continue
        out.append(step)
    return out


def classify_outputs(
    flat: list[Any], values: list[Any], roots: list[Any]
) -> tuple[list[OutputInfo], list[Any], list[Any]]:
    """How each output reaches the caller, the tensors (or symbolic numbers) that the graph returns for them, and the
    intermediate bases that it returns besides."""
    by_identity = {id(v): i for i, v in enumerate(values) if isinstance(v, TraceTensor)}
    sharing: dict[int, set[int]] = {}
    for out in flat:
        if isinstance(out, TraceTensor) and out._s is not None:
            sharing.setdefault(id(out._s), set()).add(id(out))
    slots: list[Any] = []
    bases: list[Any] = []
    base_at: dict[int, int] = {}
    first: dict[int, int] = {}
    infos: list[OutputInfo] = []
    for position, out in enumerate(flat):
        if not isinstance(out, TraceTensor):
            infos.append(_plain_output(out, slots))
            continue
        if id(out) in first:
            infos.append(OutputInfo("same", source=first[id(out)]))
            continue
        first[id(out)] = position
        storage = out._s
        if storage is None:
            raise UnsupportedError("an output that no traced op made")
        if id(out) in by_identity:
            infos.append(OutputInfo("input", source=by_identity[id(out)]))
        elif storage.real is not None:
            raise UnsupportedError("an output that shares memory with a constant")
        elif storage.input_index >= 0:
            infos.append(OutputInfo("input_view", source=storage.input_index, recipe=recipe_of(out._v, slots)))
        elif len(sharing[id(storage)]) == 1 or out._v is None:
            infos.append(OutputInfo("value", slot=len(slots), differentiable=out.requires_grad))
            slots.append(out)
        else:
            if storage.root is None or storage.root._v is not None:
                raise UnsupportedError("views of a tensor whose own metadata was changed in place")
            if id(storage) not in base_at:
                base_at[id(storage)] = len(bases)
                bases.append(storage.root)
            infos.append(OutputInfo("base_view", source=base_at[id(storage)], recipe=recipe_of(out._v, slots)))
    _share_bases_with_outputs(infos, flat, slots, bases)
    for info, out in zip(infos, flat, strict=True):
        if info.kind in _VIEWS:
            _check_replay(out)
            info.writes = _own_writes(out)
    _hang_views_on_outputs(infos, flat)
    return infos, slots, bases


def _hang_views_on_outputs(infos: list[OutputInfo], flat: list[Any]) -> None:
    """A view of what is itself an output is made of that one: gradients pass through it, as in eager."""
    made = {id(flat[i]._v): i for i, info in enumerate(infos) if info.kind in _VIEWS}
    for position, info in enumerate(infos):
        if info.kind not in _VIEWS:
            continue
        chain = _chain(flat[position])
        if any(step.func is aten._conj.default for step in chain):  # replayed by other steps
            continue
        for count, step in enumerate(chain):
            source = made.get(id(step), position)
            if source != position:
                info.kind, info.source, info.recipe = "view", source, info.recipe[len(chain) - count :]
                break


def _chain(out: Any) -> list[ViewStep]:
    steps, step = [], out._v
    while step is not None:
        steps.append(step)
        step = step.parent
    return steps


def _check_replay(out: Any) -> None:
    """Refuses a view that was detached and carries gradients since a write."""
    apart = any(s.own_counter or s.func is aten.detach.default for s in _chain(out))
    if apart and out.requires_grad:
        raise UnsupportedError("a detached tensor that a tensor with gradients was written into")


def _own_writes(out: Any) -> int:
    """What the version counter of a view counts that it does not share with its base."""
    if out.is_inference() or not any(s.own_counter for s in _chain(out)):
        return 0
    return int(out._version)


_VIEWS = ("input_view", "base_view", "output_view")


def _share_bases_with_outputs(infos: list[OutputInfo], flat: list[Any], slots: list[Any], bases: list[Any]) -> None:
    """A base that is itself an output is not returned twice: its views come from that output."""
    slot_of = {id(t): i for i, t in enumerate(slots) if isinstance(t, TraceTensor)}
    keep = [i for i, base in enumerate(bases) if id(base) not in slot_of]
    new_index = {old: new for new, old in enumerate(keep)}
    for info in infos:
        if info.kind == "base_view":
            base = bases[info.source]
            if id(base) in slot_of:
                info.kind = "output_view"
                info.source = slot_of[id(base)]
            else:
                info.source = new_index[info.source]
    bases[:] = [bases[i] for i in keep]


def _plain_output(out: Any, slots: list[Any]) -> OutputInfo:
    if isinstance(out, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        slots.append(out)
        return OutputInfo("value", slot=len(slots) - 1)
    if isinstance(out, torch.Tensor):
        raise UnsupportedError("an output that is a real tensor")
    return OutputInfo("constant", value=out)
