"""Which gradients the program asks for that an earlier call has made impossible.

A call of autograd without `retain_graph` frees what the ways that it walked had saved, and who walks one of them again
is refused. Such calls run in eager between compiled pieces; but a piece is one node for autograd where eager has many,
and freeing it would refuse ways that the program never walked. So pieces are kept, and what eager refuses is found
out once, beforehand: the captured program runs on tensors without data, where autograd frees what it frees in eager.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

FREED = "backward through the graph a second time"


@dataclasses.dataclass
class Refusals:
    """nodes: calls of autograd that raise, with the text. outputs: positions of the program's results from which no
    gradient can be taken any more, with the text."""

    nodes: dict[fx.Node, str] = dataclasses.field(default_factory=dict)
    outputs: dict[int, str] = dataclasses.field(default_factory=dict)

    def check(self, node: fx.Node) -> None:
        """Raise what eager raises at this call."""
        if node in self.nodes:
            raise RuntimeError(self.nodes[node])

    def mark(self, results: Any) -> None:
        """Let gradients of the program's results raise where eager's would."""
        for position, text in self.outputs.items():
            result = results[position] if isinstance(results, (tuple, list)) else results
            result.register_hook(_Refuse(text))


class _Refuse:
    """A hook that raises once a gradient reaches it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, grad: Any) -> None:
        if grad is not None:
            raise RuntimeError(self.text)


def _name(node: fx.Node) -> str:
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _is_freeing(node: fx.Node) -> bool:
    """A call of `torch.autograd.grad` (outputs, inputs, grad_outputs, retain_graph, create_graph, ...) that frees."""
    if _name(node) != "autograd_grad":
        return False
    retain, create = (*node.args[3:5], None, None)[:2]
    return not (create if retain is None else retain)


# They act on tensors or on autograd alone, as the other nodes do.
_PLAIN = {"autograd_grad", "run_backward", "make_parameter", "set_data"}


def _can_rehearse(gm: fx.GraphModule) -> bool:
    """False where a node calls what belongs to the program (hooks, bodies) or may look at values."""
    for node in gm.graph.nodes:
        if getattr(node.target, "_lamina_needs_real_tensors", False) and _name(node) not in _PLAIN:
            return False
        if node.target in ("register_hook", "register_post_accumulate_grad_hook", "backward"):
            return False
        if _name(node) in ("_enter_inference_mode", "_exit_inference_mode"):
            return False
    return True


def find_refusals(gm: fx.GraphModule, args: Sequence[Any]) -> Refusals:
    """What eager refuses when it runs `gm` on inputs like `args`; nothing where that cannot be found out."""
    if not any(map(_is_freeing, gm.graph.nodes)) or not _can_rehearse(gm):
        return Refusals()
    grad_mode = torch.is_grad_enabled()
    entered: list[Any] = []
    try:
        return _rehearse(gm, args, entered)
    except Exception:  # an op without a rule for tensors that have no data, or one that looks at values
        return Refusals()
    finally:
        for mode in reversed(entered):
            torch.amp.autocast_mode._exit_autocast(mode)
        torch._C._set_grad_enabled(grad_mode)


def _without_data(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    shape, stride = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
    like = torch.empty_strided(shape, stride, dtype=value.dtype, device="meta").requires_grad_(value.requires_grad)
    with torch.enable_grad():
        return like if value.is_leaf else like.clone()  # a leaf may not be written to


def _on_meta(value: Any) -> Any:
    """Arguments of a call, with the device of tensors without data."""
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_on_meta, value))
    if isinstance(value, dict):
        return {k: _on_meta(v) for k, v in value.items()}
    return value


def _rehearse(gm: fx.GraphModule, args: Sequence[Any], entered: list[Any]) -> Refusals:
    refusals = Refusals()
    env: dict[fx.Node, Any] = {}
    alike: dict[int, Any] = {}
    feed = iter(args)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            value = next(feed)
            if id(value) not in alike:
                alike[id(value)] = _without_data(value)
            env[node] = alike[id(value)]
        elif node.op == "output":
            results = fx.node.map_arg(node.args[0], env.__getitem__)
            _try_results(results if isinstance(results, (tuple, list)) else (results,), refusals)
        else:
            try:
                env[node] = _call(gm, node, env, entered)
            except RuntimeError as error:
                if FREED not in str(error) or _name(node) not in ("autograd_grad", "run_backward"):
                    raise
                refusals.nodes[node] = str(error)
                break  # and so does the program
    return refusals


def _call(gm: fx.GraphModule, node: fx.Node, env: dict[fx.Node, Any], entered: list[Any]) -> Any:
    args: Any = _on_meta(fx.node.map_arg(node.args, env.__getitem__))
    kwargs = _on_meta(fx.node.map_arg(node.kwargs, env.__getitem__))
    name = _name(node)
    if name == "run_backward":
        tensors, seeds, retain, inputs, watched = args[:5]
        torch.autograd.backward(tensors, seeds, retain, inputs=inputs)  # type: ignore[no-untyped-call]
        return tuple(t.grad for t in watched)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)  # type: ignore[arg-type]
    if node.op == "call_function":
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        if name == "_enter_autocast":
            entered.append(result)
        elif name == "_exit_autocast":
            entered.remove(args[0])
        return result
    value: Any = gm
    for part in str(node.target).split("."):
        value = getattr(value, part)
    if node.op == "get_attr":
        return _without_data(value)
    return value(*args, **kwargs)


def _try_results(results: Sequence[Any], refusals: Refusals) -> None:
    """Note the results none of whose ways to a leaf can be walked any more."""
    for position, result in enumerate(results):
        if not isinstance(result, torch.Tensor) or result.grad_fn is None:
            continue
        seed = torch.empty_like(result)
        texts = [_refusal(result, leaf, seed) for leaf in _leaves(result.grad_fn)]
        if texts and all(texts):
            refusals.outputs[position] = texts[0]  # type: ignore[assignment]


def _refusal(result: torch.Tensor, leaf: torch.Tensor, seed: torch.Tensor) -> str | None:
    try:
        torch.autograd.grad(result, leaf, seed, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        if FREED in str(error):
            return str(error)
    return None


def _leaves(grad_fn: Any) -> list[torch.Tensor]:
    seen: set[Any] = set()
    stack, found = [grad_fn], []
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack.extend(n for n, _ in node.next_functions)
    return found
