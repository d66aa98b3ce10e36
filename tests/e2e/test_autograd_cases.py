"""Aliasing, mutation, gradients, hooks, modes and function transforms in and around compiled functions are eager's."""
# The programs are odd on purpose, and tables of operators read best in long lines.
# ruff: noqa: B007, B008, B012, B018, B023, B904, E501, E731, F821, F841

from __future__ import annotations

import gc
import importlib.util
import pathlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

_spec = importlib.util.spec_from_file_location("e2e_judge", pathlib.Path(__file__).with_name("judge.py"))
judge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(judge)
book = judge.Book(backend="aot_eager")


def leaf(*shape, start=1.0):
    n = 1
    for s in shape:
        n *= s
    return (torch.arange(float(n)) / 4 + start).reshape(shape).requires_grad_()


def both(fn):
    """Decorate fn(call) -> comparable value, where call is the program `fn.program`, compiled or not."""
    def register(run):
        def case(compile):
            a = run(fn)
            b = run(compile(fn))
            found = judge.difference(judge.snapshot(a), judge.snapshot(b), "result", True, None, None)
            assert not found, found

        book.cases.setdefault(run.__name__, None)
        case.__name__ = run.__name__
        book.check(case)
        return run

    return register


# --- views and mutation -----------------------------------------------------------------------------------------

def _views(x):
    return x[0], x.t(), x.unsqueeze(0), x.view(-1)[2:], x.diagonal(), x.expand(2, 3, 3), x.as_strided((2,),
            (4,)), x.split(2)[1], x.unbind(1)[2], x.detach(), x.real


@both(_views)
def views_of_an_argument(f):
    x = torch.zeros(3, 3)
    out = f(x)
    for i, o in enumerate(out[:5]):
        o.add_(10**i)
    return x, out, [o._base is x for o in out], [o.storage_offset() for o
            in out], [o.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for o in out]


def _one_base(x):
    y = x * 2
    return y, y[0], y.t(), y.view(-1)


@both(_one_base)
def outputs_that_alias_each_other(f):
    y, row, t, flat = f(torch.ones(2, 3))
    row.add_(1)
    t[2].mul_(5)
    flat[3] = -1
    return y, row, t, flat


@both(_one_base)
def outputs_that_alias_each_other_with_gradients(f):
    x = leaf(2, 3)
    y, row, t, flat = f(x)
    row.mul_(3)
    (t.sum() + flat.sum() + y[0, 0]).backward()
    return x.grad, y.grad_fn is not None, row.is_leaf, y


def _same_twice(x):
    y = x + 1
    return y, y, [y, {"a": y}], x, (x,)


@both(_same_twice)
def one_tensor_returned_twice(f):
    x = torch.ones(2)
    a, b, (c, d), e, g = f(x)
    return a is b, c is a, d["a"] is a, e is x, g[0] is x


def _written(x, y):
    x.add_(1)
    y[0].mul_(2)
    x.t_()
    return x + 0, y * 1


@both(_written)
def arguments_written_and_metadata_changed(f):
    x, y = torch.ones(2, 3), torch.ones(3, 2)
    v = x._version
    out = f(x, y)
    return out, x, y, x._version > v, x.stride()


@both(lambda x: (x.mul_(2), x.relu_())[1])
def returned_argument_after_write(f):
    x = torch.tensor([-1.0, 1.0])
    r = f(x)
    base = leaf(2) * 1
    q = f(base)
    q.sum().backward()
    return r is x, x, q is base, base.grad_fn is not None


def _copy_between(dst, src):
    dst.copy_(src)
    dst[0] = src[1]
    return dst.sum()


@both(_copy_between)
def copy_into_other_dtype_and_overlap(f):
    d = torch.zeros(3, dtype=torch.int8)
    f(d, torch.tensor([1.9, -2.9, 300.0][:2] + [3.0]))
    h = torch.zeros(3, dtype=torch.float16)
    f(h, torch.tensor([1e5, 1.0, -1e5]))
    base = torch.arange(6.0)
    f(base[:3], base[3:])
    b = torch.zeros(3, dtype=torch.bool)
    f(b, torch.tensor([0.0, 0.5, float("nan")]))
    return d, h, base, b


def _under_no_grad(p, x):
    with torch.no_grad():
        p.mul_(0.5)
        p.add_(x, alpha=2)
    return (p * x).sum()


@both(_under_no_grad)
def parameter_updated_under_no_grad_then_used(f):
    p = leaf(3)
    loss = f(p, torch.ones(3))
    loss.backward()
    return p, p.grad, loss, p.is_leaf


def _inplace_on_view(x):
    y = x * 1
    a, b = y[:2], y[2:]
    a.mul_(2)
    y[:, 0].add_(1)
    y.t()[1].zero_()
    return y, b + 0


@both(_inplace_on_view)
def in_place_on_views_of_an_intermediate(f):
    x = leaf(4, 3)
    y, b = f(x)
    (y * y).sum().backward()
    return y, b, x.grad


def _saved_then_written(x, buf):
    y = buf * x
    buf.add_(1)
    return y


@both(_saved_then_written)
def saved_value_is_written_later(f):
    x, buf = leaf(3), torch.full((3,), 2.0)
    y = f(x, buf)
    try:
        y.sum().backward()
        ok = x.grad
    except RuntimeError as e:
        ok = "inplace" in str(e)
    return y, buf, ok


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros((), dtype=torch.int64))
        self.register_buffer("ema", torch.zeros(3))
        self.ema_view = self.ema[1:]
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.n += 1
        self.ema.lerp_(x.detach(), 0.5)
        self.ema_view.mul_(2)
        old = self.ema
        self.ema = self.ema + 1
        return x * self.w * self.n, old


@book.build(train=True)
def buffers_written_viewed_and_rebound():
    return Steps(), [(torch.arange(3.0) + i,) for i in range(3)]


def _tied(a, b):
    a.add_(1)
    return a * b, b


@both(_tied)
def one_tensor_passed_twice_with_gradients(f):
    x = leaf(2)
    h = x * 2
    y, b = f(h, h)
    y.sum().backward()
    z = torch.ones(4)
    y2, b2 = f(z[:2], z[1:3])
    return x.grad, h, b is h, y2, b2, z


def _set_data(x, y):
    y.data.add_(3)
    y.detach()[0] = 9
    z = x.detach()
    z.mul_(2)
    return x * y, z


@both(_set_data)
def writes_through_data_and_detach(f):
    x, y = leaf(2), torch.ones(2)
    r, z = f(x.detach().clone(), y)
    a = x.detach().clone()
    f(a, y)
    return r, z, y, a


def _expanded(x):
    e = x.expand(3, 2)
    y = e.clone()
    y[0] = 5
    u = x.unsqueeze(0).repeat(2, 1)
    u[0].zero_()
    return y, u, e + 1


@both(_expanded)
def clones_of_expanded(f):
    x = leaf(2)
    y, u, e = f(x)
    (y.sum() + u.sum() + e.sum()).backward()
    return y, u, x.grad, y.stride()


def _write_expanded(x):
    x.expand(3, 2).add_(1)
    return x


@both(_write_expanded)
def write_to_expanded_is_refused(f):
    try:
        return f(torch.ones(2))
    except RuntimeError:
        return "refused"


def _leaf_write(p):
    p.add_(1)
    return p * 2


@both(_leaf_write)
def write_to_a_leaf_is_refused(f):
    try:
        return f(leaf(2))
    except RuntimeError as e:
        return "leaf" in str(e)


def _view_leaf_write(p):
    p[0] = 1
    return p * 2


@both(_view_leaf_write)
def write_to_a_view_of_a_leaf_is_refused(f):
    try:
        return f(leaf(2))
    except RuntimeError as e:
        return "leaf" in str(e)


def _unbind_write(x):
    a, b = x.unbind(0)
    a.mul_(2)
    return a + b


@both(_unbind_write)
def write_to_one_of_several_views(f):
    x = leaf(2, 3) * 1
    try:
        return f(x)
    except RuntimeError as e:
        return "multiple views" in str(e)


def _resized(x):
    y = x.new_empty(0)
    y.resize_(2, 2)
    y.copy_(x)
    z = torch.empty(0)
    torch.add(x, 1, out=z)
    return y, z


@both(_resized)
def resized_and_out_arguments(f):
    return f(torch.ones(2, 2))


def _outs(a, b, o, v):
    torch.mul(a, b, out=o)
    torch.sum(a, 0, out=v[1])
    torch.max(a, 0, out=(v[0], v[2].long()))
    return o + 1


@both(_outs)
def out_arguments_that_are_inputs_and_views(f):
    o, v = torch.zeros(2, 3), torch.zeros(3, 3)
    r = f(torch.arange(6.0).view(2, 3), torch.full((2, 3), 2.0), o, v)
    return r, o, v


# --- gradients --------------------------------------------------------------------------------------------------

def _cubed(x):
    return (x**3).sum(), (x * x.detach()).sum()


@both(_cubed)
def second_derivatives_through_a_compiled_function(f):
    x = leaf(3)
    a, b = f(x)
    try:
        (g,) = torch.autograd.grad(a, x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
    except RuntimeError as e:
        return str(e)[:5]
    return g, h


@both(lambda x, y: (x * y, x + y, y.detach() * 2))
def only_some_gradients(f):
    x, y = leaf(3), leaf(3)
    a, b, c = f(x, y)
    g = torch.autograd.grad(a.sum(), [x, y], retain_graph=True)
    h = torch.autograd.grad((b * b).sum(), [y], retain_graph=True)
    k = torch.autograd.grad(a.sum(), [x], grad_outputs=torch.tensor(3.0), retain_graph=True)
    u = torch.autograd.grad(a.sum(), [x, torch.ones(1, requires_grad=True)], allow_unused=True)
    return g, h, k, u[1], c.requires_grad


@both(lambda x, y: (x * 2, y.sum() * 0 + 3))
def backward_twice_frees(f):
    x, y = leaf(3), leaf(2)
    a, b = f(x, y)
    a = a * a
    a.sum().backward(retain_graph=True)
    a.sum().backward()
    try:
        a.sum().backward()
    except RuntimeError as e:
        return "second time" in str(e), x.grad, y.grad
    return x.grad


@both(lambda x: (x.sin(), x.argmax(), x > 2, x.long()))
def outputs_that_cannot_carry_gradients(f):
    s, i, m, n = f(leaf(4))
    return s.requires_grad, i.requires_grad, m.requires_grad, n.requires_grad, i, m


@both(lambda x, w: (x @ w).relu().sum())
def gradients_accumulate_in_grad_and_keep_layout(f):
    w = leaf(4, 4).detach().t().requires_grad_()
    x = leaf(2, 4, start=-1.0)
    for _ in range(3):
        f(x, w).backward()
    x2 = leaf(2, 4)
    x2.grad = torch.ones(2, 4)
    f(x2, w).backward()
    return w.grad, x.grad, x2.grad


def _user_backward(x):
    y = (x * x).sum()
    y.backward()
    g = x.grad * 2
    x.grad = None
    return g


@both(_user_backward)
def backward_inside(f):
    x = leaf(3)
    return f(x), x.grad, f(x)


def _grad_inside(x, w):
    (g,) = torch.autograd.grad((x * w).pow(2).sum(), w, create_graph=True)
    return g, (g * g).sum()


@both(_grad_inside)
def gradient_penalty(f):
    x, w = leaf(3), leaf(3)
    g, p = f(x, w)
    p.backward()
    return g, p, x.grad, w.grad


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k, flag=None):
        ctx.save_for_backward(x)
        ctx.k = k
        ctx.mark_non_differentiable(m := x > 2)
        ctx.set_materialize_grads(False)
        return x * x * k, m

    @staticmethod
    def backward(ctx, g, _):
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        return (g * x * 7 * ctx.k if g is not None else None), None, None


def _custom(x, k):
    a, m = Square.apply(x, k)
    return a + Square.apply(x * 2, 3, "f")[0], m


@both(_custom)
def custom_function_with_numbers_and_masks(f):
    x = leaf(3)
    a, m = f(x, 2)
    a.sum().backward()
    return a, m, m.requires_grad, x.grad


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(3)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 30


def _dirty(x):
    y = x * 1
    z = Dirty.apply(y)
    return z, y * 2


@both(_dirty)
def custom_function_that_writes(f):
    x = leaf(3)
    z, y = f(x)
    (z.sum() + y.sum()).backward()
    return z, y, x.grad


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


@both(lambda x: Straight.apply(x) + (x.round() - x).detach() + x)
def straight_through(f):
    x = leaf(4)
    y = f(x)
    y.sum().backward()
    return y, x.grad


def _hooked(x, log):
    h = x * 2
    h.register_hook(lambda g: log.append("h") or g * 2)
    k = h.sin()
    k.register_hook(lambda g: log.append("k"))
    return k.sum() + h.sum()


@both(_hooked)
def hooks_on_intermediates_order(f):
    x, log = leaf(3), []
    f(x, log).backward()
    return log, x.grad


@both(lambda x: (x * 3).sum())
def hooks_on_leaves_outside(f):
    x, log = leaf(3), []
    x.register_hook(lambda g: g * 5)
    x.register_post_accumulate_grad_hook(lambda t: log.append(t.grad.clone()))
    f(x).backward()
    return x.grad, log


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.log = nn.Linear(3, 3), nn.Linear(3, 2), []
        self.a.register_full_backward_hook(lambda m, gi, go: self.log.append(("a", go[0].sum())))
        self.b.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
        self.b.register_forward_pre_hook(lambda m, args, kwargs: ((args[0] + kwargs.pop("shift", 0),), kwargs),
                with_kwargs=True)

    def forward(self, x):
        return self.b(self.a(x).tanh(), shift=1.0)


@book.build(train=True)
def module_backward_hooks():
    return Hooked(), [(torch.ones(2, 3),), (torch.ones(4, 3),)]


class Blocks(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.l = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.r = reentrant

    def forward(self, x):
        for m in self.l:
            x = checkpoint(lambda t, m=m: F.dropout(m(t), 0.5, self.training).relu(), x, use_reentrant=self.r)
        return x


@book.check
def checkpointed_dropout_uses_one_mask(compile):
    for reentrant in (False, True):
        torch.manual_seed(0)
        m = Blocks(reentrant)
        for p in m.parameters():
            nn.init.ones_(p)
        x = torch.ones(8, 4, requires_grad=True)
        torch.manual_seed(1)
        want = m(x)
        want.sum().backward()
        g, x.grad = x.grad, None
        torch.manual_seed(1)
        got = compile(m)(x)
        got.sum().backward()
        h = x.grad
        assert torch.equal(want, got) and torch.equal(g, h)


# --- modes ------------------------------------------------------------------------------------------------------

@torch.no_grad()
def _decorated(x):
    y = x * 2
    with torch.enable_grad():
        z = x * 3
    return y, z, torch.is_grad_enabled()


@both(_decorated)
def no_grad_decorator(f):
    x = leaf(2)
    y, z, on = f(x)
    return y.requires_grad, z.requires_grad, on, torch.is_grad_enabled(), f(x)[1].grad_fn is not None


def _toggles(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    z = x * y
    with torch.set_grad_enabled(x.shape[0] > 5):
        w = x + 1
    return y, z, w


@both(_toggles)
def set_grad_enabled_as_a_call(f):
    x = leaf(2)
    y, z, w = f(x)
    z.sum().backward()
    return y.requires_grad, w.requires_grad, x.grad, torch.is_grad_enabled()


def _left_off(x):
    torch.set_grad_enabled(False)
    return x * 2


@both(_left_off)
def grad_mode_left_changed(f):
    try:
        y = f(leaf(2))
        return y.requires_grad, torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


@both(lambda x: (x * 2, torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
def ambient_modes_are_guarded(f):
    x = leaf(2)
    out = []
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            y, g, i = f(x)
            out.append((y.requires_grad, y.is_inference(), g, i))
    return out


@both(lambda x, w: (x @ w).sum())
def inference_tensors_as_arguments(f):
    with torch.inference_mode():
        t = torch.ones(2, 2)
        a = f(t, t)
    b = f(t, torch.ones(2, 2))
    try:
        c = f(t, torch.ones(2, 2, requires_grad=True)).requires_grad
    except RuntimeError as e:
        c = "nference" in str(e)
    return a, b, c, b.is_inference()


def _cast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ w
        with torch.autocast("cpu", enabled=False):
            b = a.float() @ w
        c = F.softmax(a, -1)
        d = a + x
        e = F.mse_loss(a, b)
    return a, b, c, d, e, torch.is_autocast_enabled("cpu"), x @ w


@both(_cast)
def autocast_blocks(f):
    x, w = leaf(4, 4), leaf(4, 4)
    out = f(x, w)
    sum(o.float().sum() for o in out if isinstance(o, torch.Tensor)).backward()
    return [o.dtype if isinstance(o, torch.Tensor) else o for o in out], w.grad.dtype, x.grad.dtype


@both(lambda x, w: (x @ w, x + w, torch.get_autocast_dtype("cpu")))
def ambient_autocast_is_guarded(f):
    x, out = torch.ones(2, 2), []
    for dt in (None, torch.bfloat16, torch.float16, None, torch.bfloat16):
        with torch.autocast("cpu", dtype=dt or torch.bfloat16, enabled=dt is not None):
            a, b, d = f(x, x)
            out.append((a.dtype, b.dtype, d if dt else None))
    return out


@torch.autocast("cpu", dtype=torch.bfloat16)
def _cast_decorated(x):
    return x @ x


@both(_cast_decorated)
def autocast_decorator(f):
    return f(torch.ones(2, 2)).dtype, torch.is_autocast_enabled("cpu"), f(torch.ones(3, 3)).dtype


@both(lambda x: (x * torch.ones(2), torch.zeros(2).dtype, torch.tensor(1.5).dtype, torch.arange(0, 1, 0.5),
        x.new_ones(1)))
def default_dtype_is_guarded(f):
    out = [f(torch.ones(2))]
    try:
        torch.set_default_dtype(torch.float64)
        out.append(f(torch.ones(2)))
        torch.set_default_dtype(torch.bfloat16)
        out.append(f(torch.ones(2)))
    finally:
        torch.set_default_dtype(torch.float32)
    out.append(f(torch.ones(2)))
    return out


@both(lambda: (torch.ones(2), torch.arange(3), torch.tensor([1.0])))
def default_device_is_guarded(f):
    out = [[t.device.type for t in f()]]
    with torch.device("meta"):
        out.append([t.device.type for t in f()])
    out.append([t.device.type for t in f()])
    return out


def _device_block(x):
    with torch.device("meta"):
        y = torch.ones(2)
    return x + 1, y.device.type, torch.zeros(1).device.type


@both(_device_block)
def device_as_a_context(f):
    return f(torch.ones(2))


@both(lambda x: (torch.ones(2) / 3 * x, x.bernoulli()))
def deterministic_flag(f):
    try:
        torch.use_deterministic_algorithms(True)
        a = f(torch.ones(2))
    finally:
        torch.use_deterministic_algorithms(False)
    return a


@both(lambda x: x.log())
def anomaly_mode(f):
    x = torch.tensor([-1.0, 1.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        try:
            f(x).sqrt().sum().backward()
        except RuntimeError as e:
            return "nan" in str(e)
    return x.grad


@both(lambda x: (x.exp() * x).sum())
def saved_tensor_hooks_outside(f):
    x, n = leaf(3), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: n.append(1) or t.clone(), lambda t: t):
        y = f(x)
    y.backward()
    return x.grad, len(n) > 0


def _save_on_cpu(x):
    with torch.autograd.graph.save_on_cpu():
        return (x.exp() * x).sum()


@both(_save_on_cpu)
def saved_tensor_hooks_inside(f):
    x = leaf(3)
    f(x).backward()
    return x.grad


# --- transforms -------------------------------------------------------------------------------------------------

def _loss(w, x):
    return (torch.tanh(x @ w) ** 2).sum()


TRANSFORMS = {
    "grad": lambda w, x: torch.func.grad(_loss)(w, x),
    "grad_and_value": lambda w, x: torch.func.grad_and_value(_loss, argnums=(0, 1))(w, x),
    "per sample": lambda w, x: torch.func.vmap(torch.func.grad(_loss), in_dims=(None, 0))(w, x),
    "jacrev": lambda w, x: torch.func.jacrev(lambda t: (t @ w).sin())(x[0]),
    "jacfwd": lambda w, x: torch.func.jacfwd(lambda t: (t @ w).sin())(x[0]),
    "hessian": lambda w, x: torch.func.hessian(lambda t: (t @ w).sin().sum())(x[0]),
    "jvp": lambda w, x: torch.func.jvp(lambda t: (t @ w).exp(), (x,), (torch.ones_like(x),)),
    "vjp": lambda w, x: torch.func.vjp(lambda t: (t @ w).exp(), x)[1](torch.ones(5, 2)),
    "linearize": lambda w, x: torch.func.linearize(lambda t: (t @ w).exp(), x)[1](x),
    "nested vmap": lambda w, x: torch.vmap(torch.vmap(lambda a, b: a * b, (0, None)), (None, 0), out_dims=1)(x,
            w[:, 0]),
    "vmap kwargs": lambda w, x: torch.vmap(lambda a, *, k: (a * k, a.sum()), out_dims=(1, 0))(x,
            k=w[:, 1]) if False else torch.vmap(lambda a: (a * 2, a.sum()), out_dims=(1, 0))(x),
    "vmap random": lambda w, x: torch.vmap(lambda a: a + torch.rand(()) * 0, randomness="different")(x),
    "vmap same": lambda w, x: torch.vmap(lambda a: a + torch.rand(()) * 0, randomness="same")(x),
    "functional_call": lambda w, x: torch.func.functional_call(LIN, {"weight": w.t()}, (x,)),
    "grad of functional_call": lambda w, x: torch.func.grad(lambda p: torch.func.functional_call(LIN, p,
            (x,)).pow(2).sum())({"weight": w.t(), "bias": w[0]}),
    "aux": lambda w, x: torch.func.grad(lambda a: (_loss(a, x), a * 2), has_aux=True)(w),
    "vmap in place": lambda w, x: torch.vmap(lambda a: a.clone().mul_(2).index_fill_(0, torch.tensor([1]), 0))(x),
    "vmap chunk": lambda w, x: torch.vmap(lambda a: a.cumsum(0), chunk_size=2)(x),
    "double grad": lambda w, x: torch.func.grad(lambda a: torch.func.grad(lambda b: (b**4).sum())(a).sum())(w),
    "vmap where": lambda w, x: torch.vmap(lambda a, b: torch.where(a > 2, a, b[0, 0]), (0, None))(x, w),
    "functionalize": lambda w, x: torch.func.functionalize(lambda t: t.clone().add_(1).t())(x),
    "autograd jacobian": lambda w, x: torch.autograd.functional.jacobian(lambda t: (t @ w).sin(), x[0]),
    "forward ad": lambda w, x: _dual(w, x),
}
LIN = nn.Linear(4, 2)


def _dual(w, x):
    import torch.autograd.forward_ad as fwd
    with fwd.dual_level():
        return tuple(fwd.unpack_dual((fwd.make_dual(x, torch.ones_like(x)) @ w).sin()))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    fn = TRANSFORMS[name]
    for train in (False, True):
        judge.same(lambda: (fn, [(leaf(4, 2).detach().requires_grad_(train), leaf(5, 4).detach())] * 2), train=train,
                backend="aot_eager")


@book.check
def transforms_over_a_compiled_function(compile):
    w, x = leaf(4, 2).detach(), leaf(5, 4).detach()
    for how in (lambda f: torch.func.grad(f)(w, x), lambda f: torch.vmap(f, (None, 0))(w, x),
            lambda f: torch.func.jvp(lambda a: f(a, x), (w,), (w,)),
                lambda f: torch.func.vmap(torch.func.grad(f), (None, 0))(w, x), lambda f: torch.func.jacrev(f)(w, x),
                        lambda f: torch.func.hessian(f)(w, x)):
        f = compile(_loss)
        f(w, x)
        a, b = how(_loss), how(f)
        found = judge.difference(judge.snapshot(a), judge.snapshot(b), "r", False, 1e-4, 1e-4)
        assert not found, found


# --- lifetime ---------------------------------------------------------------------------------------------------

@both(lambda x: (x.sin() * x.cos(), x))
def graph_can_be_freed_before_backward(f):
    x = leaf(3)
    y, _ = f(x)
    del _
    gc.collect()
    y.sum().backward()
    return x.grad, [f(leaf(n))[0].shape for n in (2, 5)]


@both(lambda x, y: (x * y).sum())
def argument_written_between_forward_and_backward(f):
    x, y = leaf(3), torch.ones(3)
    loss = f(x, y)
    y.add_(1)
    try:
        loss.backward()
    except RuntimeError as e:
        return "modified by an inplace operation" in str(e)
    return x.grad


@pytest.mark.parametrize("name", book.cases)
def test_autograd(name):
    book.cases[name]()
