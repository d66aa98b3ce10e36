"""Tensors with metadata and no data, on which torch calls are run while a frame is translated.

``Fake`` is a wrapper subclass: autograd runs above it, so ``requires_grad``, ``grad_fn``, views and version counters
are those of
eager. Below autograd each ATen op asks, in this order: a table of results seen before (same op, same metadata), a
shape rule
(entry point group ``lamina.shape_rules``), the op itself on meta tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _torch as private
from . import interruption


class DataDependent(Exception):
    """An op whose result depends on the values of its inputs. ``scalar``: the result is a Python number."""

    def __init__(self, op: Any, scalar: bool):
        super().__init__(f"{op} depends on tensor values")
        self.op = op
        self.scalar = scalar


class Unsupported(Exception):
    """An op that fakes cannot follow (it changes metadata in place, or its result is no plain strided tensor)."""


inference_mode_enabled = torch.is_inference_mode_enabled


class Fake(torch.Tensor):
    """A tensor without data. ``mk`` is its metadata as a hashable tuple; ``vt`` the tracker that stands for it;
    ``constant`` the value of a scalar that was computed from Python numbers alone (read it with ``known_scalar``);
    ``drawn`` is set on a scalar drawn from [0, 1); ``zero`` on a count of which the guards say whether it is 0 (and the
    number of writes to it until then).
    """

    constant: Any = None
    drawn: int | None = None
    zero: tuple[bool, int] | None = None

    @staticmethod
    def make(
        shape: Any, stride: Any, dtype: torch.dtype, device: torch.device, offset: Any = 0, requires_grad: bool = False
    ) -> Fake:
        self = private.make_wrapper(
            Fake, shape, stride, storage_offset=offset, dtype=dtype, device=device, requires_grad=requires_grad
        )
        self.mk = (tuple(shape), tuple(stride), dtype, device, offset)
        self.twin = None
        self.vt = None
        return self

    __torch_function__ = private.disabled_torch_function

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Fake({list(self.mk[0])}, {self.mk[2]}, {self.mk[3]})"

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def from_real(t: torch.Tensor, shape: Any = None, stride: Any = None) -> Fake:
    """A fake with the metadata of ``t`` (or symbolic ``shape`` and ``stride``); raises Unsupported for tensors not
    plain and strided."""
    if t.layout is not torch.strided or t.is_nested:
        raise Unsupported(f"layout {t.layout}")
    if t.is_conj() or t.is_neg() or t.is_quantized:
        raise Unsupported("conjugate, negative or quantized view")
    if t.is_inference() != inference_mode_enabled():
        with private.inference_mode(t.is_inference()):
            return from_real(t, shape, stride)
    shape = t.shape if shape is None else shape
    stride = t.stride() if stride is None else stride
    if t.is_leaf:
        return Fake.make(shape, stride, t.dtype, t.device, t.storage_offset(), t.requires_grad)
    with torch.enable_grad():
        return Fake.make(shape, stride, t.dtype, t.device, t.storage_offset(), True).view_as_fake()


def _non_leaf(self: Fake) -> Fake:
    return _NonLeaf.apply(self)


class _NonLeaf(torch.autograd.Function):
    """Makes a fake that has a ``grad_fn``, as an input that was computed before has."""

    @staticmethod
    def forward(ctx: Any, x: Fake) -> Fake:
        return Fake.make(*x.mk)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


Fake.view_as_fake = _non_leaf


class FakeMode(TorchDispatchMode):
    """On while a call without tensor arguments runs, so that factories give fakes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


class _OpInfo:
    __slots__ = (
        "mutates", "written", "random", "impure", "rule", "scalar", "dynamic", "unsupported", "takes_tensors", "view",
        "fallible", "functional_rule",
    )  # fmt: skip

    def __init__(self, func: Any):
        schema = func._schema
        self.mutates = schema.is_mutable
        self.random = torch.Tag.nondeterministic_seeded in func.tags
        # Also uninitialised memory: its value is not that of another run.
        self.impure = self.mutates or self.random or "empty" in func._schema.name
        self.scalar = func in _SCALAR_OPS
        self.dynamic = torch.Tag.dynamic_output_shape in func.tags
        self.unsupported = torch.Tag.inplace_view in func.tags or func in _UNSUPPORTED or _makes_quantized(func)
        name = schema.name.split("::")[1]
        self.fallible = name in FALLIBLE or name.startswith(("linalg_", "_linalg_")) or not _is_torchs(schema.name)
        self.takes_tensors = any("Tensor" in str(a.type) for a in schema.arguments)
        self.rule = rules().get(func)
        aliases = [r.alias_info for r in schema.returns if r.alias_info is not None]
        self.view = any(not a.is_write for a in aliases)
        # For ops that write to an argument and return it: where to find the argument of each result.
        self.written: list[tuple[int, str] | None] | None = None
        if self.mutates:
            found: list[tuple[int, str] | None] = []
            for ret in schema.returns:
                alias = ret.alias_info
                at = None
                if alias is not None and alias.is_write:
                    for i, arg in enumerate(schema.arguments):
                        if arg.alias_info is not None and arg.alias_info.before_set & alias.before_set:
                            at = (i, arg.name)
                            break
                found.append(at)
            self.written = found
        self.functional_rule: Any = None  # of `add` for `add_`: it knows what eager would refuse
        if self.written is not None and [at and at[0] for at in self.written] == [0] and name.endswith("_"):
            packet = getattr(_aten, name[:-1], None)
            self.functional_rule = rules().get(getattr(packet, func._overloadname, None))


def _makes_quantized(func: Any) -> bool:
    """Does the operator make a quantized tensor? Torch's own metadata for it is that of plain floats."""
    name = func._schema.name.removeprefix("aten::")
    return name.startswith("quantize_per_") or name.endswith(("_quantized", "_quantized_tensor"))


def _is_torchs(name: str) -> bool:
    return name.startswith(("aten::", "prims::", "prim::", "quantized::"))


_rules: dict[Any, Any] | None = None


def rules() -> dict[Any, Any]:
    """Shape rules of installed packages, by overload."""
    global _rules
    if _rules is None:
        _rules = {}
        from importlib.metadata import entry_points

        for entry in entry_points(group="lamina.shape_rules"):
            try:
                _rules.update(entry.load())
            except ModuleNotFoundError:  # announced but not there: the fallback gives the same answers
                pass
            except Exception as e:  # a broken provider must not stop capture; the fallback gives the same answers
                import warnings

                warnings.warn(f"shape rules of {entry.name!r} could not be loaded: {e}", stacklevel=2)
    return _rules


_aten = torch.ops.aten
_SCALAR_OPS = {_aten._local_scalar_dense.default, _aten.item.default, _aten.is_nonzero.default, _aten.equal.default}
_ITEM = {_aten._local_scalar_dense.default, _aten.item.default}
FALLIBLE = frozenset(
    "index index_put index_put_ _unsafe_index _index_put_impl_ gather scatter scatter_ scatter_add scatter_add_ "
    "scatter_reduce scatter_reduce_ index_select index_add index_add_ index_copy index_copy_ index_fill index_fill_ "
    "index_reduce index_reduce_ take put put_ embedding embedding_renorm_ _embedding_bag _embedding_bag_forward_only "
    "nll_loss cross_entropy cross_entropy_loss embedding_bag "
    "nll_loss_forward nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward one_hot bincount "
    "multinomial normal normal_ bernoulli bernoulli_ poisson binomial _assert_async _assert_scalar repeat_interleave "
    "cholesky inverse lu_unpack geqrf ormqr triangular_solve lstsq _linalg_svd histc histogram bucketize max_unpool2d "
    "max_unpool3d masked_scatter masked_scatter_ _local_scalar_dense".split()
)
"""Operators that look at values and may refuse them, besides those of linear algebra."""
_UNSUPPORTED = {_aten.resize_.default, _aten.set_.source_Tensor, _aten.set_.source_Storage, _aten.set_.default}
_infos: dict[Any, _OpInfo] = {}
_seen: dict[Any, Any] = {}
_SEEN_LIMIT = 20_000


class Effects:
    """What the ops since the last reset did besides computing: ``impure`` is set by writes and by random numbers,
    ``random`` by these, ``fallible`` where the values of tensors decide whether the op raises."""

    impure = False
    random = False
    fallible = False
    # Values and sizes that only the run knows become symbols instead of raising DataDependent.
    unbacked = False
    # Known scalars whose value was read as a Python number since the last reset.
    read: list[Fake] = []


class _Uncachable(Exception):
    pass


_PLAIN = {bool, int, float, complex, str}
_NUMBERS = {bool, int, float, str, type(None), torch.dtype}


def _key(x: Any) -> Any:
    kind = type(x)
    if kind is Fake:
        shape, stride, dtype, device, offset = x.mk
        for n in (*shape, *stride, offset):
            if type(n) is not int:
                return (tuple(map(_size, shape)), tuple(map(_size, stride)), dtype, device, _size(offset))
        return x.mk
    if kind in _PLAIN:
        return (kind, x)
    if kind is list or kind is tuple:
        return tuple([_key(i) for i in x])
    if isinstance(x, torch.Tensor):
        return (tuple(x.shape), x.stride(), x.dtype, x.device, x.storage_offset())
    if kind is torch.SymInt:
        return _size(x)
    if isinstance(x, (torch.SymFloat, torch.SymBool, torch.Generator)):
        raise _Uncachable
    if kind is torch.Size:
        return tuple([_size(n) for n in x])
    if kind is slice:
        raise _Uncachable
    return x


def _size(n: Any) -> Any:
    """A size as part of a key: an int, or the expression of a symbolic one (as the shape environment knows it now)."""
    if type(n) is torch.SymInt:
        _Fallback.symbolic = True
        return (torch.SymInt, n.node.expr)
    return n


def dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Result metadata of one ATen op."""
    info = _infos.get(func)
    if info is None:
        info = _infos[func] = _OpInfo(func)
    if info.mutates or info.random:
        Effects.impure = True
        if info.random:
            Effects.random = True
    if info.fallible:
        Effects.fallible = True
    if info.unsupported:
        if func is _aten.detach_.default and not args[0].requires_grad:
            return args[0]  # torch.tensor(...) in inference mode
        if torch.Tag.inplace_view in func.tags and type(args[0]) is Fake and args[0].vt is None and not kwargs:
            # Inside composite ops, on a result that nobody has seen yet: noted, and applied when the call returns
            # (``settled``).
            return _changed_in_place(func, args)
        raise Unsupported(str(func))
    if kwargs.get("generator") is not None:  # metadata do not depend on it
        kwargs = {**kwargs, "generator": None}
    if info.scalar:
        value = known_scalar(args[0]) if func in _ITEM else None
        if value is None:
            if Effects.unbacked and func in _ITEM:
                return _fresh(_through_fake_tensors(func, args, kwargs))
            raise DataDependent(func, True)
        Effects.read.append(args[0])
        return value.item()
    _Fallback.symbolic = False
    try:
        key = (
            func,
            tuple([_key(a) for a in args]),
            tuple([(k, _key(x)) for k, x in kwargs.items()]) if kwargs else None,
            torch.get_default_dtype(),
        )
        # the expressions of symbolic sizes mean something in their shape environment only
        seen = _Fallback.seen if _Fallback.symbolic else _seen
        found = seen.get(key)
    except (_Uncachable, TypeError):
        key = found = None
    if found is None:
        found = _compute(func, info, args, kwargs)
        if key is not None:
            if len(seen) > _SEEN_LIMIT:
                seen.clear()
            if not _has_symbol(found) or _Fallback.symbolic and not (info.dynamic or Effects.unbacked):
                seen[key] = found  # a size that only the run knows is a symbol of its own at each call
    if info.written:
        _forget_scalars(args, kwargs)
        out = []
        results = found if isinstance(found, list) else [found]
        for at, meta in zip(info.written, results):
            if at is None:
                out.append(_fresh(meta))
            else:
                out.append(kwargs[at[1]] if at[1] in kwargs else args[at[0]])
        return out[0] if len(out) == 1 else tuple(out)
    if info.view and args and isinstance(args[0], torch.Tensor) and args[0].is_inference() != inference_mode_enabled():
        with private.inference_mode(args[0].is_inference()):  # a view is what its base is
            return _fresh(found)
    if type(found) is tuple:
        result = Fake.make(*found)
        if not found[0]:
            if not info.impure:
                _remember_scalar(result, func, args, kwargs)
            elif func in _DRAWS:
                result.drawn = _Writes.count
        return result
    return _fresh(found)


def _changed_in_place(func: Any, args: Any) -> Fake:
    """``x.squeeze_(0)`` and its like on a fake without a tracker."""
    target: Fake = args[0]
    if func is _aten.as_strided_.default:
        shape, stride = tuple(args[1]), tuple(args[2])
        offset = args[3] if len(args) > 3 else target.mk[4]
    else:
        packet = getattr(_aten, func._schema.name.removeprefix("aten::").removesuffix("_"), None)
        overload = getattr(packet, func._overloadname, None)
        if overload is None or _is_symbolic(args):
            raise Unsupported(str(func))
        view = overload(_to_meta(target), *args[1:])
        shape, stride, offset = tuple(view.shape), view.stride(), view.storage_offset()
    target.mk = (shape, stride, target.mk[2], target.mk[3], offset)
    target.twin = None
    target.changed = True  # type: ignore[attr-defined]
    return target


# -- scalars with a known value
# --------------------------------------------------------------------------------------


class _Writes:
    """Number of writes to one-element tensors so far: a known scalar holds until the next of them."""

    count = 0


def known_scalar(x: Any) -> torch.Tensor | None:
    """The 0-dim CPU tensor that ``x`` equals in every run, if ``x`` came from Python numbers alone
    (``torch.div(12, 4)``)."""
    if type(x) is not Fake:
        return x if isinstance(x, torch.Tensor) and not x.dim() and x.device.type == "cpu" else None
    if x.constant is None or x.constant[1] != _Writes.count:
        return None
    return x.constant[0]


def _remember_scalar(result: Fake, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    if result.mk[3].type != "cpu" or result.requires_grad:
        return
    real = []
    for x in args:
        if isinstance(x, torch.Tensor):
            x = known_scalar(x)
            if x is None:
                verdict = _compare_drawn(func, args)
                if verdict is not None:
                    result.constant = (torch.tensor(verdict), _Writes.count)
                return
        elif type(x) not in _NUMBERS:
            return
        real.append(x)
    for x in kwargs.values():
        if isinstance(x, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, list, tuple)):
            return
    with torch.no_grad():
        value = func(*real, **kwargs)
    if value.dtype is result.mk[2] and not value.dim():
        result.constant = (value, _Writes.count)


_DRAWS = {_aten.rand.default, _aten.rand.generator, _aten.rand_like.default}
# What ``x < n`` and so on are for every x of [0, 1), as far as n alone decides it.
_DRAWN = {
    _aten.lt.Scalar: lambda n: False if n <= 0 else True if n >= 1 else None,
    _aten.ge.Scalar: lambda n: True if n <= 0 else False if n >= 1 else None,
    _aten.gt.Scalar: lambda n: True if n < 0 else False if n >= 1 else None,
    _aten.le.Scalar: lambda n: False if n < 0 else True if n >= 1 else None,
}


_WHETHER_ZERO = {_aten.eq.Scalar: True, _aten.ne.Scalar: False, _aten.gt.Scalar: False}


def _compare_drawn(func: Any, args: Any) -> bool | None:
    """The comparison of a scalar drawn from [0, 1) with a number outside: layers are dropped with probability 0. Also
    that of a count with 0, where it is known whether it is."""
    zero = getattr(args[0], "zero", None)
    if zero is not None and zero[1] == args[0]._version and func in _WHETHER_ZERO and args[1] == 0:
        return bool(zero[0] == _WHETHER_ZERO[func])
    rule = _DRAWN.get(func)
    if rule is None or getattr(args[0], "drawn", None) != _Writes.count or type(args[1]) not in (int, float):
        return None
    verdict = rule(args[1])
    # the kernel compares in the tensor's type
    return verdict if verdict == rule(torch.tensor(args[1]).to(args[0].dtype).item()) else None


def _forget_scalars(args: Any, kwargs: dict[str, Any]) -> None:
    for t in _tensors((*args, *kwargs.values())):
        if type(t) is Fake and all(n == 1 for n in t.mk[0] if type(n) is int):
            _Writes.count += 1
            return


def _has_symbol(found: Any) -> bool:
    if isinstance(found, _Plain):
        return isinstance(found.value, (torch.SymInt, torch.SymFloat, torch.SymBool))
    if type(found) is list:
        return any(_has_symbol(f) for f in found)
    return type(found) is tuple and any(type(n) is torch.SymInt for n in (*found[0], *found[1]))


def _fresh(meta: Any) -> Any:
    kind = type(meta)
    if kind is tuple:
        return Fake.make(*meta)
    if kind is list:
        return [_fresh(m) for m in meta]
    if kind is _Plain:
        return meta.value
    return None


def settled(result: Any) -> Any:
    """``result`` of a torch call, with metadata that the call changed in place."""
    if type(result) is Fake and getattr(result, "changed", False):
        if not result.requires_grad:
            return Fake.make(*result.mk)
        with torch.enable_grad():
            return _Settled.apply(result)
    return result


def joined(like: Fake, parents: list[Fake]) -> Fake:
    """A fake like ``like`` that autograd takes to be computed from ``parents``."""
    with torch.enable_grad():
        return _Joined.apply(like, *parents)  # type: ignore[no-any-return]


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, like: Fake, *parents: Fake) -> Fake:
        ctx.parents = [p.mk for p in parents]
        return Fake.make(*like.mk)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        return (None, *[Fake.make(*mk) for mk in ctx.parents])


class _Settled(torch.autograd.Function):
    """A fake of the metadata that its argument was given in place, with the argument's history."""

    @staticmethod
    def forward(ctx: Any, x: Fake) -> Fake:
        ctx.shape = x.shape
        return Fake.make(*x.mk)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.reshape(ctx.shape) if grad.numel() == ctx.shape.numel() else grad.new_zeros(ctx.shape)


class _Plain:
    """A result that is no tensor."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def _compute(func: Any, info: _OpInfo, args: Any, kwargs: dict[str, Any]) -> Any:
    if _is_symbolic(args) or (kwargs and _is_symbolic(tuple(kwargs.values()))):
        found = _by_rule_on_symbols(func, info, args, kwargs)
        return _through_fake_tensors(func, args, kwargs) if found is None else found
    if info.rule is not None and (not info.takes_tensors or _has_tensor(args)):
        try:
            result = info.rule(args, kwargs)
        except NotImplementedError:
            pass
        else:
            return _from_rule(result, func, args)
    if info.functional_rule is not None and _can_hold(info.functional_rule, args, kwargs):
        return None  # the result is the argument
    if info.mutates and not func._schema.returns and func._schema.name.startswith("aten::_foreach_"):
        return None  # lists of tensors written in place: nothing new to describe
    if info.dynamic:
        return _through_fake_tensors(func, args, kwargs)
    device = _device(args, kwargs)
    meta_args = [_to_meta(a) for a in args]
    meta_kwargs = {k: _to_meta(x) for k, x in kwargs.items()}
    if "device" in meta_kwargs or (not _has_tensor(args) and not _has_tensor(tuple(kwargs.values()))):
        if any(a.name == "device" for a in func._schema.arguments):
            meta_kwargs["device"] = torch.device("meta")
    try:
        out = func(*meta_args, **meta_kwargs)
    except NotImplementedError:
        return _through_fake_tensors(func, args, kwargs)
    return _describe(out, device)


def _can_hold(rule: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an op in place, of which `rule` describes the functional form, can write its result to its first
    argument; False also where torch has to say so, whose own answer is slow: its Python code imports its compiler."""
    target = args[0]
    if type(target) is not Fake:
        return False
    shape, stride, dtype, device, _ = target.mk
    if any([s == 0 and n != 1 for n, s in zip(shape, stride)]):
        return False  # elements that share memory
    try:
        found = rule(args, kwargs)
    except NotImplementedError:
        return False
    return (
        len(found) == 4
        and tuple(found[0]) == tuple(shape)
        and found[3] == device
        and (found[2] is dtype or torch.can_cast(found[2], dtype))
    )


class _Fallback:
    """torch's FakeTensorMode, for symbolic sizes and for ops without a meta implementation; made when first needed.
    `seen`: results of ops on symbolic sizes in this shape environment; `lowest`: lower bounds of their expressions;
    `symbolic`: the key made last has one."""

    mode: Any = None
    lowest: dict[Any, int] = {}
    seen: dict[Any, Any] = {}
    symbolic = False


def use_shape_env(shape_env: Any) -> None:
    """Symbolic sizes of the running translation belong to ``shape_env`` (None: there are none)."""
    _Fallback.seen, _Fallback.lowest = {}, {}
    if shape_env is None:
        _Fallback.mode = None
        return
    from torch._subclasses.fake_tensor import FakeTensorMode

    _Fallback.mode = FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=True)


def _is_symbolic(x: Any) -> bool:
    for i in x:
        kind = type(i)
        if kind is Fake:
            shape, stride, _, _, offset = i.mk
            if (
                type(offset) is not int
                or any([type(n) is not int for n in shape])
                or any([type(n) is not int for n in stride])
            ):
                return True
        elif kind is torch.SymInt or kind is torch.SymFloat or kind is torch.SymBool:
            return True
        elif (kind is list or kind is tuple) and _is_symbolic(i):
            return True
    return False


# Ops whose metadata torch computes for plain sizes only.
_CONCRETE_ONLY = {torch.ops.aten.constant_pad_nd.default}


def _by_rule_on_symbols(func: Any, info: _OpInfo, args: Any, kwargs: dict[str, Any]) -> Any:
    """Result metadata from a shape rule, an order of magnitude cheaper than torch's fake tensors; None where those have
    to answer: a rule takes symbolic sizes to be neither 0 nor 1."""
    if info.rule is None or (info.takes_tensors and not _has_tensor(args)):
        return None
    trusted = func in _CONCRETE_ONLY
    if not trusted and not all(
        _are_at_least(2, t.mk[0]) and _strides_follow(t.mk)
        for t in _tensors((*args, *kwargs.values()))
        if type(t) is Fake
    ):
        return None
    try:
        found = _from_rule(info.rule(args, kwargs), func, args)
    except Exception as e:  # also what a rule refuses: torch's fake tensors have the last word, and the words of eager
        if not isinstance(e, NotImplementedError):
            interruption.pass_on(e)
        return None
    for meta in found if type(found) is list else (found,):
        if type(meta) is tuple and not trusted and not _are_at_least(1, meta[0]):
            return None
    return found


def _strides_follow(mk: Any) -> bool:
    """Whether symbolic strides are made of the tensor's own sizes. Others would be compared with those, and the answer,
    which is one of chance, become a guard."""
    own: set[Any] | None = None
    for n in mk[1]:
        if type(n) is not int:
            if own is None:
                own = {s for size in mk[0] if type(size) is not int for s in size.node.expr.free_symbols}
            if not n.node.expr.free_symbols <= own:
                return False
    return True


def _are_at_least(low: int, sizes: Any) -> bool:
    """Whether each symbolic size is known to be so large; plain ones are whatever they are."""
    for n in sizes:
        if type(n) is int:
            continue
        expr = n.node.expr
        known = _Fallback.lowest.get(expr)
        if known is None:
            bound = n.node.shape_env.bound_sympy(expr).lower
            known = _Fallback.lowest[expr] = int(bound) if bound.is_Integer else 0
        if known < low:
            return False
    return True


def _through_fake_tensors(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

    mode = _Fallback.mode
    if mode is None:
        mode = _Fallback.mode = FakeTensorMode(allow_non_fake_inputs=True)

    def convert(x: Any) -> Any:
        if type(x) is Fake:
            twin = getattr(x, "fake_twin", None)
            if twin is None or twin.fake_mode is not mode:
                shape, stride, dtype, device, offset = x.mk
                twin = torch.empty_strided(shape, stride, dtype=dtype, device=device)
                if not (type(offset) is int and offset == 0):
                    size = offset + 1
                    for n, s in zip(shape, stride):
                        size = size + (n - 1) * s
                    twin = torch.empty((size,), dtype=dtype, device=device).as_strided(shape, stride, offset)
                x.fake_twin = twin
            return twin
        if type(x) is list or type(x) is tuple:
            return type(x)([convert(i) for i in x])
        return x

    with mode, private.symbolic_decompositions(), private.quiet_fake_tensors():
        try:
            fake_args = [convert(a) for a in args]
            fake_kwargs = {k: convert(a) for k, a in kwargs.items()}
            with torch.no_grad():
                out = func(*fake_args, **fake_kwargs)
        except DataDependentOutputException as e:
            raise DataDependent(func, True) from e
        except DynamicOutputShapeException as e:
            raise DataDependent(func, False) from e
        except NotImplementedError as e:
            raise DataDependent(func, False) from e
    return _describe_fake(out)


def _describe_fake(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        if out.layout is not torch.strided:
            raise Unsupported(f"result of layout {out.layout}")
        return (tuple(out.shape), tuple(out.stride()), out.dtype, out.device, out.storage_offset())
    if isinstance(out, (list, tuple)):
        return [_describe_fake(o) for o in out]
    return None if out is None else _Plain(out)


def _from_rule(result: Any, func: Any, args: Any) -> Any:
    if isinstance(result, tuple) and len(result) == 4 and isinstance(result[2], torch.dtype):
        return (tuple(result[0]), tuple(result[1]), result[2], result[3], 0)
    if isinstance(result, (tuple, list)):
        return [None if r is None else (tuple(r[0]), tuple(r[1]), r[2], r[3], 0) for r in result]
    return _Plain(result)


def _has_tensor(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return True
    return isinstance(x, (list, tuple)) and any(_has_tensor(i) for i in x)


def _device(args: Any, kwargs: dict[str, Any]) -> torch.device:
    given = kwargs.get("device")
    if given is not None:
        device = torch.device(given)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        return device
    scalar = None
    for t in _tensors((*args, *kwargs.values())):
        if t.dim():
            return t.device
        scalar = scalar or t.device
    return scalar or torch.device("cpu")


def _tensors(x: Any) -> Any:
    for i in x:
        if isinstance(i, torch.Tensor):
            yield i
        elif isinstance(i, (list, tuple)):
            yield from _tensors(i)


def _to_meta(x: Any) -> Any:
    if isinstance(x, Fake):
        twin = x.twin
        if twin is None:
            shape, stride, dtype, _, offset = x.mk
            if type(offset) is int and offset == 0:
                twin = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            else:
                size = offset + 1
                for n, s in zip(shape, stride):
                    size = size + (n - 1) * s if n != 0 else size
                twin = torch.empty((size,), dtype=dtype, device="meta").as_strided(shape, stride, offset)
            x.twin = twin
        return twin
    if isinstance(x, torch.Tensor):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    if type(x) is list or type(x) is tuple:
        return type(x)([_to_meta(i) for i in x])
    if isinstance(x, torch.device):
        return torch.device("meta")
    return x


def _describe(out: Any, device: torch.device) -> Any:
    if isinstance(out, torch.Tensor):
        if out.layout is not torch.strided:
            raise Unsupported(f"result of layout {out.layout}")
        return (tuple(out.shape), tuple(out.stride()), out.dtype, device, out.storage_offset())
    if isinstance(out, (list, tuple)):
        return [_describe(o, device) for o in out]
    if out is None:
        return None
    return _Plain(out)
