"""Floats that change from call to call: arithmetic on them runs on the host, tensor ops get 0-dim tensors.

A placeholder whose `meta["val"]` is a SymFloat may have any value. What the graph calculates from such numbers alone is
Python arithmetic and stays that (`Lifted.host`); a number that a tensor op uses becomes a 0-dim float64 tensor input,
and the op is written so that the tensor counts as the number did (its dtype never widens the result). Ops that take
numbers only (`_fused_adamw_`, dropout) run in eager with the number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from ._torch import lazy_graph_module

NEEDS_NUMBER = "needs_number"
"""Key in a node's meta: the op reads a float that changes, so it runs in eager."""


class Lifted:
    """The rewritten graph, and how to get its inputs: those of the original (None for the floats), then one 0-dim
    tensor for each of `tensors`, then the plain `numbers`; both index what `host(*inputs)` returns. `returned`: outputs
    that are such numbers, as {position: index}."""

    def __init__(self, gm: fx.GraphModule, host: Callable[..., tuple], floats: list[int]) -> None:
        self.gm = gm
        self.host = host
        self.floats = floats
        self.tensors: list[int] = []
        self.numbers: list[int] = []
        self.returned: dict[int, int] = {}


def lift_floats(gm: fx.GraphModule) -> Lifted | None:
    """None if no float of the graph changes, or if one depends on what only the run knows."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    floats = [i for i, n in enumerate(placeholders) if isinstance(n.meta.get("val"), torch.SymFloat)]
    if not floats:
        return None
    return _Lift(gm, placeholders, floats).run()


class _Lift:
    def __init__(self, gm: fx.GraphModule, placeholders: list[fx.Node], floats: list[int]) -> None:
        self.gm = gm
        self.placeholders = placeholders
        self.floats = floats
        #: nodes known before the graph runs, and those of them that depend on a float
        self.known: set[fx.Node] = set()
        self.varying: set[fx.Node] = {placeholders[i] for i in floats}

    def run(self) -> Lifted | None:
        for node in self.gm.graph.nodes:
            if not self.note(node):
                return None
        wanted = [n for n in self.varying_in_order() if any(u not in self.varying for u in n.users)]
        host = self.host_graph(wanted)
        lifted = Lifted(self.gm, host, self.floats)
        self.rewrite(lifted, wanted)
        return lifted

    def note(self, node: fx.Node) -> bool:
        """Classifies a node; False if a float is mixed with numbers that come out of the graph."""
        value = node.meta.get("val")
        is_number = isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
        if node.op == "placeholder":
            if is_number or node in self.varying:
                self.known.add(node)
            return True
        if node.op in ("output", "get_attr") or not is_number:
            return True
        inputs = node.all_input_nodes
        if node.op == "call_method" and node.target == "size" and inputs[0].op == "placeholder":
            self.known.add(node)  # sizes of inputs
            return True
        varies = any(n in self.varying for n in inputs)
        if node.op == "call_function" and all(n in self.known for n in inputs):
            self.known.add(node)
            if varies:
                self.varying.add(node)
            return True
        return not varies

    def varying_in_order(self) -> list[fx.Node]:
        return [n for n in self.gm.graph.nodes if n in self.varying]

    def host_graph(self, wanted: list[fx.Node]) -> Callable[..., tuple]:
        graph = fx.Graph()
        env: dict[fx.Node, Any] = {}
        for node in self.placeholders:
            env[node] = graph.placeholder(node.name)
        for node in self.gm.graph.nodes:
            if node in self.known and node not in env:
                env[node] = graph.node_copy(node, env.__getitem__)
                env[node].meta = {}
        graph.output(tuple(env[n] for n in wanted))
        graph.eliminate_dead_code()
        return fx.GraphModule(torch.nn.Module(), graph).forward

    def rewrite(self, lifted: Lifted, wanted: list[fx.Node]) -> None:
        graph = fx.Graph()
        env: dict[fx.Node, Any] = {n: graph.node_copy(n) for n in self.placeholders}
        for i in self.floats:
            env[self.placeholders[i]].meta = {}
        tensor_of: dict[fx.Node, fx.Node] = {}
        number_of: dict[fx.Node, fx.Node] = {}
        plans = {n: plan_of(n, self.varying) for n in self.gm.graph.nodes if self.uses(n)}
        for index, node in enumerate(wanted):
            if any(plans.get(u) is not None for u in node.users):
                lifted.tensors.append(index)
                made = tensor_of[node] = graph.placeholder(f"{node.name}_scalar")
                made.meta["val"] = torch.empty((), dtype=torch.float64, device="meta")
        for index, node in enumerate(wanted):
            if any(u in plans and plans[u] is None for u in node.users):
                lifted.numbers.append(index)
                number_of[node] = graph.placeholder(f"{node.name}_number")
        for node in self.gm.graph.nodes:
            if node.op == "placeholder" or node in self.varying:
                continue
            if node.op == "output":
                env[node] = self.output(graph, node, env, wanted, lifted)
                continue
            if node not in plans:
                env[node] = graph.node_copy(node, env.__getitem__)
                continue
            plan = plans[node]
            given = number_of if plan is None else tensor_of

            def get(n: fx.Node, given: dict = given) -> Any:
                return given[n] if n in self.varying else env[n]

            if plan is None:
                made = env[node] = graph.node_copy(node, get)
                made.meta = dict(node.meta)
                made.meta[NEEDS_NUMBER] = True
                continue
            args = fx.node.map_arg(node.args, get)
            kwargs = fx.node.map_arg(node.kwargs, get)
            made = env[node] = graph.create_node("call_function", plan, args, kwargs, name=node.name)
            made.meta = dict(node.meta)
        lifted.gm = lazy_graph_module(self.gm, graph)

    def uses(self, node: fx.Node) -> bool:
        return (
            node.op not in ("placeholder", "output")
            and node not in self.varying
            and any(n in self.varying for n in node.all_input_nodes)
        )

    def output(self, graph: fx.Graph, node: fx.Node, env: dict, wanted: list[fx.Node], lifted: Lifted) -> fx.Node:
        results = node.args[0]
        assert isinstance(results, (tuple, list))
        out: list[Any] = []
        for position, item in enumerate(results):
            if isinstance(item, fx.Node) and item in self.varying:
                lifted.returned[position] = wanted.index(item)
                out.append(None)
            else:
                out.append(fx.node.map_arg(item, env.__getitem__))
        return graph.output(tuple(out))


def run_lifted(inner: Callable[..., Any], lifted: Lifted, device: torch.device) -> Callable[..., Any]:
    """The callable of the original graph: calculates the numbers and calls `inner` with them."""
    host, floats = lifted.host, tuple(lifted.floats)
    tensors, numbers, returned = tuple(lifted.tensors), tuple(lifted.numbers), tuple(lifted.returned.items())
    make = torch.scalar_tensor

    def call(*args: Any) -> Any:
        values = host(*args)
        given = list(args)
        for i in floats:
            given[i] = None
        for i in tensors:
            given.append(make(values[i], dtype=torch.float64, device=device))
        for i in numbers:
            given.append(values[i])
        result = inner(*given)
        if returned:
            result = list(result)
            for position, i in returned:
                result[position] = values[i]
        return result

    return call


# -- how an op takes the tensor in the place of the number -------------------------------------------------------------


def as_operand(scalar: torch.Tensor, *others: Any) -> torch.Tensor:
    """`scalar` (0-dim float64) in the dtype that a Python float takes beside `others`."""
    dtypes = [t.dtype for t in others if isinstance(t, torch.Tensor)]
    dtype = dtypes[0] if dtypes else torch.get_default_dtype()
    for other in dtypes[1:]:
        dtype = torch.promote_types(dtype, other)
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    return scalar.to(dtype)


def _is_scalar(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not x.dim() and x.dtype is torch.float64


class Operands:
    """Calls `function` with the scalars among its arguments as operands."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "op")
        self.__module__ = __name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        others = [v for v in values if isinstance(v, torch.Tensor) and not _is_scalar(v)]
        others = others or [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]

        def change(v: Any) -> Any:
            return as_operand(v, *(o for o in others if o.dtype is not torch.bool)) if _is_scalar(v) else v

        return self.function(*[change(a) for a in args], **{k: change(v) for k, v in kwargs.items()})


class Scaled:
    """`add`, `sub`, `addcmul`, `addcdiv` whose factor is a scalar: the factor multiplies the last term."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__name__ = name
        self.__module__ = __name__

    def __call__(self, x: Any, *args: Any, alpha: Any = None, value: Any = None) -> Any:
        name = self.name.rstrip("_")
        if name in ("add", "sub"):
            term, factor, base = args[0], alpha, name
        else:
            term = args[0] / args[1] if name == "addcdiv" else args[0] * args[1]
            factor, base = value, "add"
        if factor is not None:
            term = term * as_operand(factor, x)
        return getattr(x, base + ("_" if self.name.endswith("_") else ""))(term)


def _full(size: Any, fill_value: torch.Tensor, *, dtype: Any = None, device: Any = None, **rest: Any) -> torch.Tensor:
    return torch.empty(size, dtype=dtype, device=device, **rest).fill_(fill_value)


def _full_like(x: torch.Tensor, fill_value: torch.Tensor, **rest: Any) -> torch.Tensor:
    return torch.zeros_like(x, **rest).fill_(fill_value)


def _new_full(x: torch.Tensor, size: Any, fill_value: torch.Tensor, **rest: Any) -> torch.Tensor:
    return x.new_empty(size, **rest).fill_(fill_value)


def _tensor(value: torch.Tensor, *, dtype: Any = None, device: Any = None, **rest: Any) -> torch.Tensor:
    return value.to(dtype=dtype or torch.get_default_dtype(), device=device, copy=True)


class Foreach:
    """A `_foreach_` op, one tensor after the other."""

    def __init__(self, name: str) -> None:
        self.single = name.removeprefix("_foreach_")
        self.__name__ = name
        self.__module__ = __name__

    def __call__(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        run = Scaled(self.single) if self.single.rstrip("_") in _SCALED else Operands(_Method(self.single))
        results = []
        for i, x in enumerate(tensors):
            row = [a[i] if isinstance(a, (list, tuple)) else a for a in args]
            named = {k: a[i] if isinstance(a, (list, tuple)) else a for k, a in kwargs.items()}
            if len(row) == 3:  # addcdiv and addcmul take the factor by position too
                named["value"] = row.pop()
            for name, factor in named.items():
                if isinstance(factor, (int, float)):
                    named[name] = torch.scalar_tensor(factor, dtype=torch.float64, device=x.device)
            if "scalars" in named:
                named["value"] = named.pop("scalars")
            results.append(run(x, *row, **named))
        return None if self.single.endswith("_") else results


class _Method:
    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, self.__name__)(*args, **kwargs)


_ELEMENTWISE = frozenset(
    "add sub mul div truediv true_divide divide multiply subtract floordiv floor_divide mod remainder fmod pow "
    "lt le gt ge eq ne less less_equal greater greater_equal not_equal iadd isub imul itruediv where masked_fill "
    "lerp clamp clip clamp_min clamp_max xlogy rsub fill".split()
)
_SCALED = frozenset({"add", "sub", "addcdiv", "addcmul"})
_MAKERS: dict[Any, Callable[..., Any]] = {
    torch.full: _full,
    torch.full_like: _full_like,
    torch.tensor: _tensor,
    torch.scalar_tensor: _tensor,
    "new_full": _new_full,
}
_FOREACH = frozenset("add sub mul div addcdiv addcmul".split())
_CLAMPS = frozenset({"clamp", "clip"})


def plan_of(node: fx.Node, varying: set[fx.Node]) -> Callable[..., Any] | None:
    """What to call in the place of `node`'s target when its changing numbers are 0-dim tensors; None: nothing fits."""
    if any(n in varying and not isinstance(n.meta.get("val"), torch.SymFloat) for n in node.all_input_nodes):
        return None  # an int made of a float
    target: Any = node.target
    try:
        maker = _MAKERS.get(target)
    except TypeError:
        return None
    if target is operator.setitem:
        return target if node.args[2] in varying and isinstance(node.args[1], (int, slice)) else None
    if maker is not None:
        return maker if not node.kwargs.get("requires_grad") and "pin_memory" not in node.kwargs else None
    name = target if node.op == "call_method" else getattr(target, "__name__", "")
    owner = getattr(target, "__module__", None)
    if node.op == "call_function" and not (
        owner in ("_operator", "torch", "torch._C", None) or getattr(torch, name, None) is target
    ):
        return None
    plain = name.rstrip("_")
    floating = _floating_operands(node, varying)
    if name.startswith("_foreach_"):
        fits = plain.removeprefix("_foreach_") in _FOREACH and floating
        return Foreach(name) if fits and not any(k not in ("alpha", "value", "scalars") for k in node.kwargs) else None
    factors = {k: v for k, v in node.kwargs.items() if k in ("alpha", "value") and v in varying}
    if plain in _SCALED and factors:
        others = [a for a in node.args if not isinstance(a, fx.Node) or a in varying]
        return Scaled(name) if floating and not others and len(node.kwargs) == 1 else None
    if plain not in _ELEMENTWISE or "out" in node.kwargs or "rounding_mode" in node.kwargs:
        return None
    if plain in _CLAMPS and not _is_clamp_of_tensors(node, varying):
        return None
    if plain == "where" and len(node.args) != 3:
        return None
    function = _Method(name) if node.op == "call_method" else target
    return Operands(function)


def _floating_operands(node: fx.Node, varying: set[fx.Node]) -> bool:
    def fits(value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return all(fits(v) for v in value)
        return not isinstance(value, torch.Tensor) or value.dtype.is_floating_point

    return all(fits(n.meta.get("val")) for n in node.all_input_nodes if n not in varying)


def _is_clamp_of_tensors(node: fx.Node, varying: set[fx.Node]) -> bool:
    """Tensor bounds must both be tensors, and never widen what is clamped."""
    bounds = [*node.args[1:], *node.kwargs.values()]
    return all(b is None or (isinstance(b, fx.Node) and b in varying) for b in bounds) and _floating_operands(
        node, varying
    )


__all__ = ["NEEDS_NUMBER", "Lifted", "lift_floats", "run_lifted"]
