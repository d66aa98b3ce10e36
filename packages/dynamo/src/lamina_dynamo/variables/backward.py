"""``loss.backward()`` in the region: one node of the graph, which runs autograd for real and gives the gradients.

What a call changes is found on the fakes: their autograd graph is eager's as far as it was made in the region, and its
ends are the tensors whose ``grad`` is set or added to. The node first gives each of them the ``grad`` that the program
has stored so far, runs autograd, and returns what their ``grad`` is then. Where functions of the program's own take
part, or gradients are to be differentiated, autograd is run on the fakes as well. What cannot be told while translating
is left to eager: hooks and functions that do more than compute, a graph that began outside the region.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import higher_order
from ..failed_graph import has_handler_of_program
from ..fake import Fake
from ..graph_break import GraphBreak
from ..source import AttrSource
from .base import VariableTracker
from .constant import ConstantVariable
from .context import current_output
from .function_effects import has_effects
from .tensor import METHODS, TensorVariable
from .tensor_state import follow_hook, make_node
from .torch_api import handles

_FAKES = Fake.__module__


class Gradients:
    """What the calls of backward so far did: ``values`` holds the present ``grad`` of tensors, ``freed`` the functions
    whose saved tensors are gone."""

    def __init__(self) -> None:
        self.values: dict[VariableTracker, VariableTracker] = {}
        self.freed: set[Any] = set()
        self.retained: list[TensorVariable] = []
        #: was a hook registered that is not there before the region ends?
        self.hooks_to_come = False

    def forget(self) -> None:
        self.values.clear()
        self.freed.clear()
        self.retained.clear()
        self.hooks_to_come = False


def _break(reason: str) -> GraphBreak:
    return GraphBreak("autograd_call", reason=reason)


def _flag(vt: VariableTracker | None) -> Any:
    return None if vt is None else vt.realize().as_python_constant()


def _is_none(vt: VariableTracker | None) -> bool:
    return vt is None or isinstance(vt.realize(), ConstantVariable) and vt.realize().as_python_constant() is None


def _walk(roots: list[Fake]) -> tuple[list[Fake], set[Any]]:
    """The leaves that gradients of ``roots`` may reach, and the functions on the way."""
    pending: list[Any] = [r.grad_fn for r in roots if r.grad_fn is not None]
    leaves: dict[int, Fake] = {id(r): r for r in roots if r.grad_fn is None}
    seen: set[Any] = set(pending)
    functions: set[Any] = set()
    while pending:
        fn = pending.pop()
        leaf = getattr(fn, "variable", None)
        if leaf is not None:
            leaves.setdefault(id(leaf), leaf)
            continue
        functions.add(fn)
        if getattr(fn, "_saved_sparse", False) or getattr(fn, "_saved_sparse_grad", False):
            raise _break("a sparse gradient")
        owner = _owner(fn)
        if owner is not None and has_effects(_backward_of(owner), tensors=True):
            raise _break(f"the backward of {owner.__name__} may have side effects")
        for before, _ in fn.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                pending.append(before)
    return list(leaves.values()), functions


def _owner(fn: Any) -> Any:
    """The program's own ``torch.autograd.Function`` behind a node of autograd's graph, or None."""
    owner = getattr(fn, "_forward_cls", None)
    return None if owner is None or owner.__module__ == _FAKES else owner


def _backward_of(owner: Any) -> Any:
    plain = torch.autograd.Function
    return owner.backward if owner.backward is not plain.backward else owner.vjp


def _differentiate(roots: Any, leaves: Any, seeds: Any, create_graph: bool) -> Any:
    with torch.autograd.set_multithreading_enabled(False):
        return torch.autograd.grad(
            roots, leaves, seeds, retain_graph=True, create_graph=create_graph, allow_unused=True
        )


def _found(roots: list[Fake], leaves: list[Fake], seeds: list[Any], create_graph: bool) -> list[Fake | None]:
    """What autograd gives for the fakes; None where no gradient arrives."""
    output = current_output()
    call = (list(roots), list(leaves), list(seeds), create_graph)
    try:
        found, _ = output.run_fake("call_function", _differentiate, call, {})
    except GraphBreak as e:
        raise _break(f"of the functions in it: {e}") from None
    return list(found)


def reached(roots: list[Fake]) -> list[Fake]:
    """The leaves that gradients of ``roots`` reach."""
    leaves, functions = _walk(roots)
    if leaves and any(map(_owner, functions)):
        seeds = [Fake.make(*r.mk) for r in roots]
        return [leaf for leaf, g in zip(leaves, _found(roots, leaves, seeds, False)) if g is not None]
    return leaves


def _present(tx: Any, vt: TensorVariable, create_graph: bool | None) -> VariableTracker:
    """``vt.grad``, as the program sees it now."""
    found = vt.get_attr(tx, "grad").realize()
    if isinstance(found, TensorVariable):
        if found.cls is not torch.Tensor or found.fake.requires_grad and not create_graph:
            raise _break("a gradient that is differentiable itself")
    elif not _is_none(found):
        raise _break("an unusual gradient")
    return found


def _check_hooks(tx: Any, vt: TensorVariable) -> None:
    """Hooks that only compute another gradient run in the node as they do in eager."""
    if vt.real is None or vt.source is None:
        return
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        value = getattr(vt.real, name, None)
        if value and name == "_backward_hooks" and _changes_gradients_only(tx):
            for _, hook in tx.wrap(value, AttrSource(vt.source, name)).realize().pairs(tx):
                try:
                    follow_hook(tx, vt, hook.realize())
                except GraphBreak as e:
                    raise _break(f"{vt.source.name} has hooks with side effects: {e}") from None
            continue
        if value:
            raise _break(f"{vt.source.name} has hooks")
        if value is None:
            tx.wrap(None, AttrSource(vt.source, name)).realize()
        else:  # the dict of a hook that was removed
            tx.output.guard(AttrSource(vt.source, name), "LENGTH", 0)


def _changes_gradients_only(tx: Any) -> bool:
    """Would a hook that runs now see everything as the program has it?"""
    effects = tx.output.side_effects
    return not effects.global_stores and all(
        isinstance(vt, TensorVariable) and set(vt.attrs or ()) <= {"grad"} for vt in effects.modified
    )


def _new_gradient(leaf: Fake) -> Fake:
    """As autograd makes it: in the layout of a dense tensor."""
    if any(type(n) is not int for n in (*leaf.shape, *leaf.stride())):
        raise _break("symbolic sizes")
    with torch.no_grad():
        like = torch.empty_like(leaf)
    if like.stride() != leaf.stride():
        raise _break("a tensor that is not dense")
    return Fake.make(tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype, leaf.device)


def run_backward(
    tx: Any,
    tensors: list[Any],
    grad_tensors: list[Any] | None,
    retain_graph: bool | None,
    create_graph: bool | None,
    inputs: list[Any] | None,
) -> VariableTracker:
    """``torch.autograd.backward`` with everything unpacked."""
    output = tx.output
    if output.gradients.hooks_to_come:
        raise _break("a hook with side effects was registered before it")
    if output.graph is not output.root_graph:
        raise _break("inside a body")
    if has_handler_of_program(tx):
        raise _break("inside a try block")
    if not tensors or not all(isinstance(t, TensorVariable) and t.fake.requires_grad for t in tensors):
        raise _break("nothing to differentiate")
    seeds: list[Any] = grad_tensors if grad_tensors is not None else [None] * len(tensors)
    if len(seeds) != len(tensors):
        raise _break("not one gradient for each tensor")
    for t, seed in zip(tensors, seeds):
        if seed is None and t.fake.numel() != 1 or seed is not None and tuple(seed.fake.shape) != tuple(t.fake.shape):
            raise _break("a gradient of another shape")
        if seed is not None and (seed.fake.requires_grad or seed.fake.dtype != t.fake.dtype):
            raise _break("an unusual gradient is given")
    output.stamps.need_history()
    state = output.gradients
    retain_graph = bool(create_graph) if retain_graph is None else retain_graph
    leaves, walked = _walk([t.fake for t in tensors])
    if create_graph and any(type(fn).__name__ == "_JoinedBackward" for fn in walked):
        raise _break("create_graph through a checkpoint")
    if not state.freed.isdisjoint(walked):
        raise _break("a graph that was freed")
    reached: list[TensorVariable] = []
    for leaf in leaves:
        vt = leaf.vt
        if not isinstance(vt, TensorVariable) or vt.fake is not leaf:
            raise _break("a graph from outside")
        reached.append(vt)
    kept = [vt for vt in state.retained if vt.fake.grad_fn in walked]
    if inputs is not None:
        if kept or not all(isinstance(t, TensorVariable) and t.fake.is_leaf for t in inputs):
            raise _break("gradients of tensors that are no leaves")
        reached = [vt for vt in reached if any(vt is t for t in inputs)]
        if len(reached) != len({id(t) for t in inputs}):
            raise _break("a tensor that was not used")
    exact: list[Fake | None] | None = None
    if create_graph or any(map(_owner, walked)):
        given = [None if s is None else s.fake for s in seeds]
        targets = [*reached, *kept]
        exact = _found([t.fake for t in tensors], [vt.fake for vt in targets], given, bool(create_graph))
        reached = [vt for vt, g in zip(targets, exact) if g is not None and vt not in kept]
        kept = [vt for vt, g in zip(targets, exact) if g is not None and vt in kept]
        exact = [g for g in exact if g is not None]
    priors: list[VariableTracker] = []
    fakes: list[Fake] = []
    for i, vt in enumerate([*reached, *kept]):
        _check_hooks(tx, vt)
        prior = _present(tx, vt, create_graph)
        priors.append(prior)
        renewed = _is_none(prior) or vt in kept
        if create_graph:
            fakes.append(_differentiable(vt, None if renewed else prior, exact[i]))  # type: ignore[index, arg-type]
        else:
            fakes.append(_new_gradient(vt.fake) if renewed else prior.fake)  # type: ignore[attr-defined]
    reached += kept
    node = make_node(
        tx,
        higher_order.run_backward,
        (
            [t.as_proxy() for t in tensors],
            [None if s is None else s.as_proxy() for s in seeds],
            bool(retain_graph),
            None if inputs is None else [t.as_proxy() for t in inputs],
            [vt.as_proxy() for vt in reached],
            [p.as_proxy() for p in priors],
            *((True,) if create_graph else ()),
        ),
        tuple(fakes),
    )
    results = output.wrap_result(node, tuple(fakes))
    for vt, prior, result in zip(reached, priors, results.unpack(tx)):
        state.values[vt] = result if create_graph or _is_none(prior) or vt in kept else prior
        if vt.attrs is not None and "grad" in vt.attrs:  # the node has stored it
            del vt.attrs["grad"]
            if not vt.attrs:
                output.side_effects.modified.pop(vt, None)
    if not retain_graph:
        state.freed |= walked
    return tx.const(None)  # type: ignore[no-any-return]


def _differentiable(vt: TensorVariable, prior: TensorVariable | None, gradient: Fake) -> Fake:
    """``grad`` behind a backward with ``create_graph``: with a history of its own, never written in place."""
    with torch.enable_grad(), current_output().mode:
        made = gradient.clone() if prior is None else prior.fake + gradient
    if prior is None and made.stride() != _new_gradient(vt.fake).stride():
        raise _break("create_graph with a gradient of another layout")
    return made  # type: ignore[no-any-return]


def _listed(tx: Any, vt: VariableTracker | None) -> list[Any] | None:
    """The tensors of an argument that is a tensor, a sequence or None; None entries stay."""
    if _is_none(vt):
        return None
    vt = vt.realize()  # type: ignore[union-attr]
    items = [vt] if isinstance(vt, TensorVariable) else [i.realize() for i in vt.unpack(tx)]
    return [None if _is_none(i) else i for i in items]


def _given(names: tuple[str, ...], args: Any, kwargs: Any) -> dict[str, Any]:
    if len(args) > len(names) or set(kwargs) - set(names) or set(names[: len(args)]) & set(kwargs):
        raise _break("unusual arguments")
    return dict(zip(names, args)) | kwargs


def _method(tx: Any, vt: TensorVariable, args: Any, kwargs: Any) -> VariableTracker:
    given = _given(("gradient", "retain_graph", "create_graph", "inputs"), args, kwargs)
    return run_backward(
        tx, [vt], _listed(tx, given.get("gradient")), _flag(given.get("retain_graph")),
        _flag(given.get("create_graph")), _listed(tx, given.get("inputs")),
    )  # fmt: skip


@handles(torch.autograd.backward)
def _function(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    names = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
    given = _given(names, args, kwargs)
    if not _is_none(given.get("grad_variables")):
        raise _break("grad_variables")
    return run_backward(
        tx, _listed(tx, given.get("tensors")) or [], _listed(tx, given.get("grad_tensors")),
        _flag(given.get("retain_graph")), _flag(given.get("create_graph")), _listed(tx, given.get("inputs")),
    )  # fmt: skip


METHODS["backward"] = _method
