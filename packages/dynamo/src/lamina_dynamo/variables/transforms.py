"""``torch.func`` transforms, control-flow operators and checkpoints: one graph node over bodies."""

from __future__ import annotations

from typing import Any

import torch

from .. import _torch as private
from .. import higher_order
from ..fake import Fake, joined
from ..graph_break import GraphBreak
from .base import VariableTracker
from .bodies import body_node, call_with_body, leaves_of, map_leaves, rebuild, translate_body
from .constant import ConstantVariable
from .container import TupleVariable
from .dicts import DictVariable
from .module import ModuleVariable
from .tensor import TensorVariable
from .torch_api import handles


def _options(
    args: list[VariableTracker], kwargs: dict[str, VariableTracker], names: tuple[str, ...], defaults: tuple[Any, ...]
) -> list[VariableTracker]:
    """Arguments by position or name, with defaults."""
    from ..translator.base import constant

    values = list(args)
    rest = dict(kwargs)
    for i, name in enumerate(names):
        if i < len(values):
            continue
        values.append(rest.pop(name) if name in rest else constant(defaults[i]))
    if rest or len(values) > len(names):
        raise GraphBreak("higher_order", reason="unexpected arguments")
    return [v.realize() for v in values]


class TransformedVariable(VariableTracker):
    """``torch.func.grad(f)`` and its like: calling it makes the node."""

    __slots__ = ("kind", "fn", "options")

    def __init__(self, kind: str, fn: VariableTracker, options: list[VariableTracker]):
        self.source = None
        self.kind = kind
        self.fn = fn
        self.options = options

    def describe(self) -> str:
        return f"torch.func.{self.kind} of a function"

    def python_type(self) -> type:
        return type(leaves_of)

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        args = [a.realize() for a in args]
        kwargs = {k: a.realize() for k, a in kwargs.items()}
        return _CALLS[self.kind](tx, self.kind, self.fn, self.options, args, kwargs)

    def children(self) -> Any:
        return (self.fn, *self.options)

    def reconstruct(self, codegen: Any) -> None:
        codegen.push_function(getattr(torch.func, self.kind))
        codegen(self.fn)
        for option in self.options:
            codegen(option)
        names = _SIGNATURES[self.kind][0]
        codegen.call_kw(1 + len(self.options), tuple(names[: len(self.options)]))


# -- vmap --------------------------------------------------------------------------------------------------------------


def _spread(tx: Any, dims: VariableTracker, value: VariableTracker) -> list[int | None]:
    """One entry of ``in_dims`` for each tensor of ``value``."""
    dims, value = dims.realize(), value.realize()
    if isinstance(dims, ConstantVariable):
        return [dims.value] * len(leaves_of(tx, value))
    if isinstance(dims, DictVariable) and isinstance(value, DictVariable):
        found: list[int | None] = []
        for key, (_, v) in value.entries.items():
            found += _spread(tx, dims.entries[key][1], v)
        return found
    items, parts = getattr(dims, "items", None), getattr(value, "items", None)
    if not isinstance(items, list) or not isinstance(parts, list) or len(items) != len(parts):
        raise GraphBreak("higher_order", reason="in_dims do not fit the arguments")
    return [d for i, p in zip(items, parts) for d in _spread(tx, i, p)]


def _call_vmap(
    tx: Any,
    kind: str,
    fn: VariableTracker,
    options: list[VariableTracker],
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    in_dims, out_dims, randomness, chunk_size = options
    whole = TupleVariable(list(args))
    dims = _spread(tx, in_dims, whole)
    leaves = leaves_of(tx, whole)
    for k in kwargs.values():
        more = leaves_of(tx, k)
        leaves += more
        dims += [0] * len(more)
    dim_of: dict[int, int | None] = {}
    for leaf, dim in zip(leaves, dims):
        if dim_of.setdefault(id(leaf), dim) != dim:
            raise GraphBreak("higher_order", reason="one tensor is mapped over two dimensions")
        if dim is not None and not (type(dim) is int and -leaf.fake.dim() <= dim < leaf.fake.dim()):
            raise GraphBreak("higher_order", reason="in_dims do not fit the arguments")

    def one_of(leaf: Any) -> Any:
        dim = dim_of[id(leaf)]
        if dim is None:
            return leaf.fake
        shape, stride, dtype, device, _ = leaf.fake.mk
        at = dim % len(shape)
        keep = [i for i in range(len(shape)) if i != at]
        return Fake.make(
            tuple(shape[i] for i in keep), tuple(stride[i] for i in keep), dtype, device, 0, leaf.fake.requires_grad
        )

    body = translate_body(tx, fn, args, kwargs, fake_of=one_of)
    result = body.result.realize()
    outs = (
        _spread(tx, out_dims, result)
        if not isinstance(out_dims, ConstantVariable)
        else [out_dims.value] * len(body.leaves)
    )
    unique = list({id(leaf): leaf for leaf in leaves}.values())
    given = {
        "randomness": randomness.as_python_constant(),
        "chunk_size": chunk_size.as_python_constant(),
    }
    inputs = [leaf.as_proxy() for leaf in unique] + body.lifted
    flat_dims = [dim_of[id(leaf)] for leaf in unique] + [None] * len(body.lifted)
    node = body_node(tx, body)
    values = call_with_body(tx, higher_order.call_vmap, [body], (node, flat_dims, outs, given, *inputs))
    return rebuild(tx, result, values)


# -- derivatives -------------------------------------------------------------------------------------------------------


def _argument_numbers(options: VariableTracker) -> tuple[bool, list[int]]:
    value = options.as_python_constant()
    if isinstance(value, int):
        return True, [value]
    return False, list(value)


def _differentiated(args: list[VariableTracker], numbers: list[int]) -> list[VariableTracker]:
    try:
        return [args[n] for n in numbers]
    except IndexError:
        raise GraphBreak("higher_order", reason="argnums beyond the arguments") from None


def _with_grad(leaf: Any) -> Any:
    shape, stride, dtype, device, offset = leaf.fake.mk
    differentiable = dtype.is_floating_point or dtype.is_complex
    return Fake.make(shape, stride, dtype, device, offset, differentiable or leaf.fake.requires_grad)


class _Derivative:
    """A body whose first inputs are those that are differentiated."""

    def __init__(
        self,
        tx: Any,
        fn: VariableTracker,
        chosen: list[VariableTracker],
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
        has_aux: bool,
    ):
        self.first = [leaf for c in chosen for leaf in leaves_of(tx, c)]
        if len({id(v) for v in self.first}) != len(self.first):
            raise GraphBreak("higher_order", reason="the same tensor is differentiated twice")
        with torch.enable_grad():
            self.body = translate_body(tx, fn, args, kwargs, fake_of=_with_grad, first=self.first)
        known = {id(leaf) for leaf in self.first}
        others: dict[int, Any] = {}
        for a in (*args, *kwargs.values()):
            for leaf in leaves_of(tx, a):
                if id(leaf) not in known:
                    others.setdefault(id(leaf), leaf)
        self.rest = [leaf.as_proxy() for leaf in others.values()] + self.body.lifted
        self.result = self.body.result.realize()
        self.aux: VariableTracker | None = None
        self.value = self.result
        if has_aux:
            items = getattr(self.result, "items", None)
            if not isinstance(items, list) or len(items) != 2:
                raise GraphBreak("higher_order", reason="has_aux needs a function that returns (output, aux)")
            self.value, self.aux = items[0].realize(), items[1]
        self.results = len(leaves_of(tx, self.value))
        if not self.first or not self.results:
            raise GraphBreak("higher_order", reason="nothing to differentiate")

    @property
    def count(self) -> int:
        return len(self.first)

    def inputs(self) -> list[Any]:
        return [leaf.as_proxy() for leaf in self.first]


def _call_grad(
    tx: Any, kind: str, fn: VariableTracker, options: list[VariableTracker], args: Any, kwargs: Any
) -> VariableTracker:
    single, numbers = _argument_numbers(options[0])
    has_aux = bool(options[1].as_python_constant())
    chosen = _differentiated(args, numbers)
    made = _Derivative(tx, fn, chosen, args, kwargs, has_aux)
    if not isinstance(made.value, TensorVariable):
        raise GraphBreak("higher_order", reason="the function does not return one tensor")
    node = body_node(tx, made.body)
    values = call_with_body(tx, higher_order.call_grad, [made.body], (node, made.count, *made.inputs(), *made.rest))
    n = made.count
    grads = rebuild(tx, chosen[0] if single else TupleVariable(list(chosen)), values[:n])
    if kind == "grad":
        if made.aux is None:
            return grads
        return TupleVariable([grads, rebuild(tx, made.aux, values[n + 1 :])])
    value: VariableTracker = values[n]
    if made.aux is not None:
        value = TupleVariable([value, rebuild(tx, made.aux, values[n + 1 :])])
    return TupleVariable([grads, value])


def _call_jacobian(
    tx: Any, kind: str, fn: VariableTracker, options: list[VariableTracker], args: Any, kwargs: Any
) -> VariableTracker:
    single, numbers = _argument_numbers(options[0])
    has_aux = bool(options[1].as_python_constant())
    names = _SIGNATURES[kind][0][2:]
    given = {name: o.as_python_constant() for name, o in zip(names, options[2:])}
    if given.get("_preallocate_and_copy"):
        raise GraphBreak("higher_order", reason="_preallocate_and_copy")
    given.pop("_preallocate_and_copy", None)
    chosen = _differentiated(args, numbers)
    made = _Derivative(tx, fn, chosen, args, kwargs, has_aux)
    node = body_node(tx, made.body)
    values = call_with_body(
        tx,
        higher_order.call_jacobian,
        [made.body],
        (kind, node, made.count, made.results, given, *made.inputs(), *made.rest),
    )
    n, m = made.count, made.results
    pattern = chosen[0] if single else TupleVariable(list(chosen))
    rows = [rebuild(tx, pattern, values[i * n : (i + 1) * n]) for i in range(m)]
    jacobian = rebuild(tx, made.value, rows)
    if made.aux is None:
        return jacobian
    return TupleVariable([jacobian, rebuild(tx, made.aux, values[n * m :])])


def _call_hessian(
    tx: Any, kind: str, fn: VariableTracker, options: list[VariableTracker], args: Any, kwargs: Any
) -> VariableTracker:
    from ..translator.base import constant

    inner = TransformedVariable("jacrev", fn, [options[0], constant(False), constant(None)])
    outer = TransformedVariable("jacfwd", inner, [options[0], constant(False), constant("error")])
    return outer.call_function(tx, args, kwargs)


_SIGNATURES: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "vmap": (("in_dims", "out_dims", "randomness", "chunk_size"), (0, 0, "error", None)),
    "grad": (("argnums", "has_aux"), (0, False)),
    "grad_and_value": (("argnums", "has_aux"), (0, False)),
    "jacrev": (("argnums", "has_aux", "chunk_size", "_preallocate_and_copy"), (0, False, None, False)),
    "jacfwd": (("argnums", "has_aux", "randomness"), (0, False, "error")),
    "hessian": (("argnums",), (0,)),
}
_CALLS = {
    "vmap": _call_vmap,
    "grad": _call_grad,
    "grad_and_value": _call_grad,
    "jacrev": _call_jacobian,
    "jacfwd": _call_jacobian,
    "hessian": _call_hessian,
}


def _transform(kind: str) -> Any:
    names, defaults = _SIGNATURES[kind]

    def handler(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        kwargs = dict(kwargs)
        fn = args[0] if args else kwargs.pop("func")
        return TransformedVariable(kind, fn, _options(args[1:], kwargs, names, defaults))

    return handler


for _kind in _SIGNATURES:
    handles(getattr(torch.func, _kind))(_transform(_kind))
handles(torch.vmap)(_transform("vmap"))


class PullbackVariable(VariableTracker):
    """The function that ``torch.func.vjp`` returns."""

    __slots__ = ("made", "primals")

    def __init__(self, made: _Derivative, primals: list[VariableTracker]):
        self.source = None
        self.made = made
        self.primals = primals

    def python_type(self) -> type:
        return type(leaves_of)

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        made = self.made
        if len(args) != 1 or any(k not in ("retain_graph", "create_graph") for k in kwargs):
            raise GraphBreak("higher_order", reason="arguments of a vjp function")
        cotangents = [leaf.as_proxy() for leaf in leaves_of(tx, args[0])]
        if len(cotangents) != made.results:
            raise GraphBreak("higher_order", reason="cotangents do not fit the outputs")
        node = body_node(tx, made.body)
        values = call_with_body(
            tx,
            higher_order.call_vjp,
            [made.body],
            (node, made.count, made.results, *made.inputs(), *cotangents, *made.rest),
        )
        return rebuild(tx, TupleVariable(list(self.primals)), values)


@handles(torch.func.vjp)
def _vjp(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    has_aux = bool(kwargs["has_aux"].as_python_constant()) if "has_aux" in kwargs else False
    fn, *primals = [a.realize() for a in args]
    made = _Derivative(tx, fn, primals, primals, {}, has_aux)
    node = body_node(tx, made.body)
    # The outputs: the body itself, in place.
    values = call_with_body(tx, _call_body, [made.body], (node, *made.inputs(), *made.rest))
    outputs = rebuild(tx, made.value, values[: made.results])
    pull = PullbackVariable(made, primals)
    if made.aux is None:
        return TupleVariable([outputs, pull])
    return TupleVariable([outputs, pull, rebuild(tx, made.aux, values[made.results :])])


def _call_body(body: Any, *inputs: Any) -> tuple[Any, ...]:
    return tuple(body(*inputs))


@handles(torch.func.jvp)
def _jvp(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    fn, primals, tangents, strict, has_aux = _options(
        args, kwargs, ("func", "primals", "tangents", "strict", "has_aux"), (None, None, None, False, False)
    )
    if strict.as_python_constant():
        raise GraphBreak("higher_order", reason="strict")
    values = [p.realize() for p in primals.unpack(tx)]
    made = _Derivative(tx, fn, values, values, {}, bool(has_aux.as_python_constant()))
    directions = [leaf.as_proxy() for leaf in leaves_of(tx, tangents)]
    if len(directions) != made.count:
        raise GraphBreak("higher_order", reason="tangents do not fit the primals")
    node = body_node(tx, made.body)
    m = made.results
    flat = call_with_body(
        tx, higher_order.call_jvp, [made.body], (node, made.count, m, *made.inputs(), *directions, *made.rest)
    )
    out = [rebuild(tx, made.value, flat[:m]), rebuild(tx, made.value, flat[m : 2 * m])]
    if made.aux is not None:
        out.append(rebuild(tx, made.aux, flat[2 * m :]))
    return TupleVariable(out)


class LinearizedVariable(VariableTracker):
    """The function that ``torch.func.linearize`` returns."""

    __slots__ = ("made", "versions")

    def __init__(self, made: _Derivative):
        self.source = None
        self.made = made
        self.versions = self._versions()

    def _versions(self) -> list[int]:
        fakes = [node.meta["val"] for node in (*self.made.inputs(), *self.made.rest)]
        return [f._version for f in fakes if isinstance(f, torch.Tensor) and not f.is_inference()]

    def python_type(self) -> type:
        return type(leaves_of)

    def truth(self, tx: Any) -> bool:
        return True

    def call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        made = self.made
        tangents = leaves_of(tx, TupleVariable(list(args)))
        if kwargs or [_kind_of(t.as_proxy()) for t in tangents] != [_kind_of(node) for node in made.inputs()]:
            raise GraphBreak("higher_order", reason="tangents do not fit the primals")
        if self._versions() != self.versions:
            raise GraphBreak("higher_order", reason="what linearize was given has been written to since")
        m = made.results
        call = (body_node(tx, made.body), made.count, m, *made.inputs(), *[t.as_proxy() for t in tangents], *made.rest)
        return rebuild(tx, made.value, call_with_body(tx, higher_order.call_jvp, [made.body], call)[m : 2 * m])


def _kind_of(node: torch.fx.Node) -> Any:
    fake = node.meta["val"]
    return tuple(fake.shape), fake.dtype, fake.device


@handles(torch.func.linearize)
def _linearize(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    fn, *primals = [a.realize() for a in args]
    if kwargs:
        raise GraphBreak("higher_order", reason="unexpected arguments")
    made = _Derivative(tx, fn, primals, primals, {}, False)
    if made.body.impure:
        raise GraphBreak("higher_order", reason="the linearized function draws random numbers or writes to tensors")
    fakes = [node.meta["val"] for node in (*made.inputs(), *made.rest)]
    if torch.is_grad_enabled() and any(isinstance(f, torch.Tensor) and f.requires_grad for f in fakes):
        # What is folded to a constant has no history there, and the rest has one.
        raise GraphBreak("higher_order", reason="linearize of something that requires gradients")
    values = call_with_body(tx, _call_body, [made.body], (body_node(tx, made.body), *made.inputs(), *made.rest))
    return TupleVariable([rebuild(tx, made.value, values), LinearizedVariable(made)])


# -- control flow ------------------------------------------------------------------------------------------------------


def _same_results(a: Any, b: Any) -> bool:
    return len(a.leaves) == len(b.leaves) and all(
        x.fake.mk[0] == y.fake.mk[0] and x.fake.mk[2:4] == y.fake.mk[2:4] for x, y in zip(a.leaves, b.leaves)
    )


@handles(torch.cond)
def _cond(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    predicate, true_fn, false_fn, operands = _options(
        args, kwargs, ("pred", "true_fn", "false_fn", "operands"), (None, None, None, ())
    )
    values = operands.unpack(tx)
    if not isinstance(predicate, TensorVariable):
        chosen = true_fn if tx.truth(predicate) else false_fn
        return chosen.call_function(tx, values, {})
    leaves = list({id(leaf): leaf for leaf in leaves_of(tx, TupleVariable(list(values)))}.values())
    bodies = [translate_body(tx, fn, values, pure=True) for fn in (true_fn, false_fn)]
    if not _same_results(*bodies):
        raise GraphBreak("higher_order", reason="the branches of cond give different metadata")
    inputs = [leaf.as_proxy() for leaf in leaves]
    nodes = [body_node(tx, b) for b in bodies]
    fake = [_plain_copy(leaf, other) for leaf, other in zip(bodies[0].leaves, bodies[1].leaves)]
    flat = _recorded(
        tx,
        higher_order.call_cond,
        bodies,
        (predicate.as_proxy(), *nodes, [*inputs, *bodies[0].lifted], [*inputs, *bodies[1].lifted]),
        fake,
    )
    return rebuild(tx, bodies[0].result, flat)


def _plain_copy(*leaves: Any) -> Any:
    shape, stride, dtype, device, _ = leaves[0].fake.mk
    wanted = any(leaf.fake.requires_grad for leaf in leaves) and torch.is_grad_enabled()
    made = Fake.make(shape, stride, dtype, device, 0, wanted)
    return made.view_as_fake() if wanted else made  # type: ignore[attr-defined]


def _recorded(tx: Any, target: Any, bodies: Any, args: Any, fakes: list[Any], kwargs: Any = None) -> list[Any]:
    """A node whose results are known to be like ``fakes``."""
    output = tx.output
    node = output.graph.create_node("call_function", target, args, kwargs or {})
    output.op_count += 1
    node.meta.update(val=tuple(fakes), stack_trace=tx.stack_trace())
    if any(b.impure for b in bodies):
        node.meta["impure"] = True
    return list(output.wrap_result(node, tuple(fakes)).items)


@handles(getattr(private, "while_loop", None))
def _while_loop(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    condition, fn, carried = _options(args, kwargs, ("cond_fn", "body_fn", "carried_inputs"), (None, None, ()))
    values = [v.realize() for v in carried.unpack(tx)]
    if not all(isinstance(v, TensorVariable) for v in values) or len({id(v) for v in values}) != len(values):
        raise GraphBreak("higher_order", reason="while_loop carries something else than distinct tensors")
    test = translate_body(tx, condition, values, pure=True)
    body = translate_body(tx, fn, values, pure=True)
    if len(test.leaves) != 1 or len(body.leaves) != len(values):
        raise GraphBreak("higher_order", reason="the bodies of while_loop do not fit its inputs")
    if any(a.fake.mk[0] != b.fake.mk[0] or a.fake.mk[2:4] != b.fake.mk[2:4] for a, b in zip(values, body.leaves)):
        raise GraphBreak("higher_order", reason="the body of while_loop changes the metadata of what it carries")
    nodes = [body_node(tx, test), body_node(tx, body)]
    inputs = [v.as_proxy() for v in values]
    fakes = [_plain_copy(a, b) for a, b in zip(body.leaves, values)]
    flat = _recorded(tx, higher_order.call_while, [test, body], (*nodes, inputs, test.lifted, body.lifted), fakes)
    return rebuild(tx, TupleVariable(list(body.result.realize().unpack(tx))), flat)


# -- checkpoints -------------------------------------------------------------------------------------------------------


@handles(torch.utils.checkpoint.checkpoint)
def _checkpoint(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    kwargs = dict(kwargs)
    names = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
    settings = {name: kwargs.pop(name) for name in names if name in kwargs}
    fn, *rest = args
    if "context_fn" in settings or "debug" in settings:
        raise GraphBreak("higher_order", reason="a checkpoint with contexts of its own")
    given = {name: vt.as_python_constant() for name, vt in settings.items()}
    leaves = list({id(v): v for a in (*rest, *kwargs.values()) for v in leaves_of(tx, a)}.values())
    if given.get("use_reentrant", True) is not False and not any(v.fake.requires_grad for v in leaves):
        # Nothing in it gets a gradient then, whatever else it uses.
        if torch.is_grad_enabled():
            raise GraphBreak("higher_order", reason="a reentrant checkpoint without inputs that require grad")
    body = translate_body(tx, fn, rest, kwargs)
    if body.writes_to_arguments and torch.is_grad_enabled():
        raise GraphBreak("higher_order", reason="a checkpointed region writes to tensors from outside, twice in eager")
    # Batch norms: their statistics move once more when the region is run again.
    over_state = body.writes_to_others and torch.is_grad_enabled()
    target = higher_order.checkpoint_over_state if over_state else torch.utils.checkpoint.checkpoint
    node = body_node(tx, body)
    inputs = [v.as_proxy() for v in leaves] + body.lifted
    fakes = [_with_history(body, leaf) for leaf in body.leaves]
    flat = _recorded(tx, target, [body], (node, *inputs), fakes, given)
    return rebuild(tx, body.result, flat)


def _with_history(body: Any, leaf: Any) -> Fake:
    """The fake of a result that the body ``leaf`` is, computed from what ``leaf`` was computed from."""
    from .backward import reached

    shape, stride, dtype, device, _ = leaf.fake.mk
    made = Fake.make(shape, stride, dtype, device)
    if not leaf.fake.requires_grad or not torch.is_grad_enabled():
        return made
    outside = {id(inner.fake): outer.fake for outer, inner in body.entered}
    parents = [outside.get(id(fake), fake) for fake in reached([leaf.fake])]
    return joined(made, parents)


#: Scans and maps over more slices than this are not unrolled by the stages behind.
_MOST_UNROLLED = 64


def _distinct(tx: Any, vt: VariableTracker, index: tuple[Any, ...] | None = None) -> VariableTracker:
    """``vt`` with a tensor of its own at each place (or a slice of it): the inputs of a body."""

    def change(leaf: Any) -> VariableTracker:
        if index is not None:
            return tx.output.create_call("call_method", "select", [leaf, *index])  # type: ignore[no-any-return]
        return tx.output.create_call("call_method", "clone", [leaf])  # type: ignore[no-any-return]

    return map_leaves(tx, vt, change)


def _slices(tx: Any, xs: VariableTracker, dim: int) -> tuple[list[Any], int]:
    """The tensors of ``xs`` and their common length along ``dim``."""
    leaves: list[Any] = leaves_of(tx, xs)
    lengths = {leaf.fake.shape[dim] if 0 <= dim < leaf.fake.dim() else 0 for leaf in leaves}
    if len(lengths) != 1:
        raise GraphBreak("higher_order", reason="tensors of different lengths")
    length = lengths.pop()
    if type(length) is not int or length == 0:
        raise GraphBreak("higher_order", reason="the length is symbolic or 0")
    return leaves, length


def _wants_grad(fakes: list[Any]) -> bool:
    return torch.is_grad_enabled() and any(f.requires_grad for f in fakes)


def _result_fake(shape: Any, dtype: Any, device: Any, wanted: bool, stride: Any = None) -> Any:
    if stride is None:
        stride = torch.empty(shape, device="meta").stride()
    made = Fake.make(tuple(shape), tuple(stride), dtype, device, 0, wanted)
    return made.view_as_fake() if wanted else made  # type: ignore[attr-defined]


def _scan(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    fn, init, xs, dim_vt, reverse_vt = _options(
        args, kwargs, ("combine_fn", "init", "xs", "dim", "reverse"), (None, None, None, 0, False)
    )
    dim, reverse = dim_vt.as_python_constant(), reverse_vt.as_python_constant()
    out_dim = dim if private.scan_moves_results else 0
    leaves, length = _slices(tx, xs, dim)
    carried = _distinct(tx, init)
    part = _distinct(tx, xs, (tx.const(dim), tx.const(0)))
    first = [*leaves_of(tx, carried), *leaves_of(tx, part)]
    body = translate_body(tx, fn, [carried, part], first=first, pure=True)
    items = getattr(body.result.realize(), "items", None)
    if not isinstance(items, list) or len(items) != 2:
        raise GraphBreak("higher_order", reason="the function of scan does not return (carry, output)")
    starts: list[Any] = leaves_of(tx, init)
    ends = body.leaves[: len(starts)]
    if len(leaves_of(tx, items[0])) != len(starts) or any(
        a.fake.mk[0] != b.fake.mk[0] or a.fake.mk[2:4] != b.fake.mk[2:4] for a, b in zip(starts, ends)
    ):
        raise GraphBreak("higher_order", reason="the carry of scan changes its metadata")
    given = [leaf.as_proxy() for leaf in (*starts, *leaves)]
    wanted = _wants_grad([*(leaf.fake for leaf in (*starts, *leaves)), *(n.meta["val"] for n in body.lifted)])
    fakes = [_result_fake(e.fake.shape, e.fake.dtype, e.fake.device, wanted, e.fake.stride()) for e in ends]
    for leaf in body.leaves[len(starts) :]:
        stacked = torch.empty((length, *leaf.fake.shape), device="meta")
        if out_dim and out_dim < stacked.dim():
            stacked = stacked.movedim(0, out_dim)
        fakes.append(_result_fake(stacked.shape, leaf.fake.dtype, leaf.fake.device, wanted, stacked.stride()))
    target = higher_order.call_long_scan if length > _MOST_UNROLLED else higher_order.call_scan
    node = body_node(tx, body)
    values = _recorded(
        tx, target, [body], (node, len(starts), len(leaves), dim, out_dim, reverse, *given, *body.lifted), fakes
    )
    n = len(starts)
    return TupleVariable([rebuild(tx, items[0], values[:n]), rebuild(tx, items[1], values[n:])])


def _map(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    if kwargs or len(args) < 2:
        raise GraphBreak("higher_order", reason="unexpected arguments")
    fn, xs, *rest = [a.realize() for a in args]
    leaves, length = _slices(tx, xs, 0)
    part = _distinct(tx, xs, (tx.const(0), tx.const(0)))
    more = [_distinct(tx, r) for r in rest]
    first = [*leaves_of(tx, part), *(leaf for m in more for leaf in leaves_of(tx, m))]
    body = translate_body(tx, fn, [part, *more], first=first, pure=True)
    given: list[Any] = [*leaves, *(leaf for r in rest for leaf in leaves_of(tx, r))]
    wanted = _wants_grad([*(leaf.fake for leaf in given), *(n.meta["val"] for n in body.lifted)])
    fakes = [
        _result_fake((length, *leaf.fake.shape), leaf.fake.dtype, leaf.fake.device, wanted) for leaf in body.leaves
    ]
    target = higher_order.call_long_map if length > _MOST_UNROLLED else higher_order.call_map
    node = body_node(tx, body)
    proxies = [leaf.as_proxy() for leaf in given]
    return rebuild(tx, body.result, _recorded(tx, target, [body], (node, len(leaves), *proxies, *body.lifted), fakes))


if private.scan is not None:
    handles(private.scan)(_scan)
if private.map_operator is not None:
    handles(private.map_operator)(_map)


# -- modules with other parameters -------------------------------------------------------------------------------------


@handles(torch.func.functional_call, torch.nn.utils.stateless.functional_call)
def _functional_call(tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    module, given, inputs, named, tie, strict = _options(
        args,
        kwargs,
        ("module", "parameter_and_buffer_dicts", "args", "kwargs", "tie_weights", "strict"),
        (None, None, None, None, True, False),
    )
    if type(module) is not ModuleVariable or strict.as_python_constant():
        raise GraphBreak("higher_order", reason="functional_call of something else than a module, or strict")
    replaced: dict[str, VariableTracker] = {}
    for part in [given] if isinstance(given, DictVariable) else given.unpack(tx):
        part = part.realize()
        if not isinstance(part, DictVariable):
            raise GraphBreak("higher_order", reason="functional_call without a dict")
        part.guard_all_keys(tx)
        for key, value in part.entries.values():
            if key.realize().as_python_constant() in replaced:
                raise GraphBreak("higher_order", reason="functional_call with one name twice")
            replaced[key.as_python_constant()] = value.realize()
    if tie.as_python_constant():
        _tie(module.value, replaced)
    call_args: list[VariableTracker] = []
    if not (isinstance(inputs, ConstantVariable) and inputs.value is None):
        call_args = inputs.unpack(tx) if isinstance(inputs, TupleVariable) else [inputs]
    call_kwargs: dict[str, VariableTracker] = {}
    if isinstance(named, DictVariable):
        call_kwargs = {k.realize().as_python_constant(): v for k, v in named.entries.values()}
    changed: list[tuple[ModuleVariable, str, VariableTracker | None]] = []
    changes = tx.output.side_effects.state_of_changes()
    try:
        for path, value in replaced.items():
            *parents, name = path.split(".")
            owner: Any = module
            for parent in parents:
                owner = owner.get_attr(tx, parent).realize()
            if type(owner) is not ModuleVariable or isinstance(owner.value, torch.nn.RNNBase):
                raise GraphBreak("higher_order", reason=f"functional_call cannot replace {path}")
            owner.get_attr(tx, name)
            if name not in owner._members:
                raise GraphBreak("higher_order", reason=f"functional_call cannot replace {path}")
            changed.append((owner, name, owner._members[name]))
            owner._members[name] = value
        result = module.call_function(tx, call_args, call_kwargs)
    finally:
        for owner, name, before in changed:
            owner._members[name] = before  # type: ignore[assignment]
    if tx.output.side_effects.state_of_changes() != changes:
        raise GraphBreak("higher_order", reason="the module changes itself in functional_call")
    return result


def _tie(module: torch.nn.Module, replaced: dict[str, VariableTracker]) -> None:
    """Names of the same tensor are replaced together."""
    names: dict[int, list[str]] = {}
    for members in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, tensor in members:
            names.setdefault(id(tensor), []).append(name)
    for group in names.values():
        chosen = [n for n in group if n in replaced]
        if len(group) > 1 and chosen:
            if len({id(replaced[n]) for n in chosen}) > 1:
                raise GraphBreak("higher_order", reason="functional_call with several values for one tied tensor")
            for name in group:
                replaced[name] = replaced[chosen[0]]


__all__ = ["TransformedVariable"]
