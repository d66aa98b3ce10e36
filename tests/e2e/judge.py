"""Compare a program with itself compiled, call by call: results, arguments after the call, gradients and errors.

A *case* is a function that makes (program, list of argument tuples) anew, or one that takes `compile` and asserts.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn

import lamina

SIMPLE = (int, float, bool, str, bytes, complex, type(None))


def snapshot(value, depth=0):
    """A copy of the value to compare later: tensors keep type, dtype, shape, stride, gradient flag and numbers."""
    if isinstance(value, torch.Tensor):
        kind = "Tensor" if isinstance(value, nn.Parameter) else type(value).__name__
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            plain = value.detach()
            plain = plain if type(plain) is torch.Tensor else plain.as_subclass(torch.Tensor)
            data = (plain.to_dense() if plain.layout != torch.strided else plain).clone()
        stride = value.stride() if value.layout == torch.strided else None
        return ("tensor", kind, value.dtype, tuple(value.shape), stride, value.requires_grad, data)
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tolist())
    if isinstance(value, np.generic):
        return ("number", str(value.dtype), value.item())
    if isinstance(value, SIMPLE):
        return value
    if isinstance(value, type):
        return ("class", value.__name__)
    if depth > 8:
        return "..."
    name = type(value).__name__
    if isinstance(value, nn.Module):
        return ("module", name, {k: snapshot(v, depth + 1) for k, v in value.state_dict().items()}, value.training)
    if hasattr(value, "keys") and hasattr(value, "items"):
        return ("map", name, [(snapshot(k, 8) if not isinstance(k, SIMPLE) else k, snapshot(v, depth + 1))
                              for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return ("set", name, sorted(map(repr, value)))
    if isinstance(value, (list, tuple)) or name == "deque":
        return ("seq", name, [snapshot(v, depth + 1) for v in value], attributes(value, depth))
    if callable(value) or hasattr(value, "__next__"):
        return "callable" if callable(value) else "iterator"
    if type(value).__module__ in ("torch", "builtins", "torch._C"):
        return str(value)
    return ("object", name, attributes(value, depth))


def attributes(value, depth):
    return {k: snapshot(v, depth + 1) for k, v in getattr(value, "__dict__", {}).items() if not k.startswith("__")}


def difference(a, b, where, strides, rtol, atol):
    """None when equal, else where and how the compiled value b differs from eager's a."""
    if type(a) is not type(b):
        return f"{where}: {a!r} became {b!r}"
    if isinstance(a, tuple) and a and a[0] == "tensor" and b[0] == "tensor":
        for name, p, q in zip(("type", "dtype", "shape", "stride", "requires_grad"), a[1:], b[1:]):
            if p != q and (name != "stride" or strides):
                return f"{where}: {name} {p} became {q}"
        x, y = a[6], b[6]
        if rtol is None:
            low = x.dtype in (torch.float16, torch.bfloat16)
            rtol, atol = (1e-2, 1e-2) if low else (1e-7, 1e-7) if x.dtype is torch.float64 else (1e-4, 1e-5)
        if x.dtype.is_floating_point or x.dtype.is_complex:
            same = torch.allclose(x, y, rtol, atol, equal_nan=True) and torch.equal(
                x.isinf() if not x.dtype.is_complex else x == x, y.isinf() if not x.dtype.is_complex else y == y)
        else:
            same = torch.equal(x, y)
        return None if same else f"{where}: {x.flatten()[:8].tolist()} became {y.flatten()[:8].tolist()}"
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{where}: length {len(a)} became {len(b)}: {a!r} / {b!r}"
        parts = (difference(x, y, f"{where}[{i}]", strides, rtol, atol) for i, (x, y) in enumerate(zip(a, b)))
        return next((p for p in parts if p), None)
    if isinstance(a, dict):
        if list(a) != list(b):
            return f"{where}: keys {list(a)} became {list(b)}"
        parts = (difference(a[k], b[k], f"{where}.{k}", strides, rtol, atol) for k in a)
        return next((p for p in parts if p), None)
    if isinstance(a, float):
        return None if a == b or (a != a and b != b) or abs(a - b) <= 1e-6 * max(1, abs(a)) else f"{where}: {a} → {b}"
    return None if a == b else f"{where}: {a!r} became {b!r}"


def leaves(value):
    if isinstance(value, nn.Module):
        return list(value.parameters())
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def seed():
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def run(build, wrap, train):
    seed()
    fn, calls = build()
    call = wrap(fn)
    seed()
    rows = []
    for args in calls:
        kwargs = {}
        if args and isinstance(args[-1], dict) and args[-1].get("__kwargs__"):
            kwargs = {k: v for k, v in args[-1].items() if k != "__kwargs__"}
            args = args[:-1]
        try:
            out = call(*args, **kwargs)
        except Exception as error:
            rows.append({"error": error})
            continue
        row = {"result": snapshot(out)}
        if train:
            roots = [o for o in leaves(out) if o.requires_grad]
            if roots:
                sum((torch.view_as_real(o) if o.is_complex() else o).sum() for o in roots).backward()
            sources = leaves((args, kwargs)) + (list(fn.parameters()) if isinstance(fn, nn.Module) else [])
            sources = [s for s in sources if s.requires_grad and s.is_leaf]
            row["gradients"] = [snapshot(s.grad) for s in sources]
            for s in sources:
                s.grad = None
        row["arguments"] = snapshot((list(args), kwargs))
        if isinstance(fn, nn.Module):
            row["module"] = snapshot(fn)
        rows.append(row)
    return rows


def same(build, *, train=False, strides=True, rtol=None, atol=None, fails=False, **options):
    """Run the case uncompiled and compiled (with these options of `compile`) and assert that nothing differs.

    `fails` says that some call raises in eager; without it such a call is a mistake of the case.
    """
    want = run(build, lambda f: f, train)
    wrong = next((row["error"] for row in want if "error" in row), None)
    if wrong is not None and not fails:
        raise AssertionError("the case itself fails in eager") from wrong
    got = run(build, lambda f: lamina.compile(f, **options), train)
    for k, (a, b) in enumerate(zip(want, got, strict=True)):
        if "error" in a or "error" in b:
            if "error" not in a:
                raise AssertionError(f"call {k}: compiled raises") from b["error"]
            assert "error" in b, f"call {k}: eager raises {a['error']!r}, compiled gives a result"
            assert isinstance(b["error"], type(a["error"])), f"call {k}: {a['error']!r} became {b['error']!r}"
            continue
        for part in a:
            found = difference(a[part], b[part], f"call {k} {part}", strides, rtol, atol)
            assert not found, found


class Book:
    """Cases of one area, by name. `backend` is what they run on unless a case says otherwise."""

    def __init__(self, backend="inductor"):
        self.cases, self.backend = {}, backend

    def calls(self, *makers, **options):
        """Decorate a program without state; each maker returns the arguments of one call."""
        def register(fn):
            self.cases[fn.__name__] = lambda: same(lambda: (fn, [m() for m in makers]),
                                                   **{"backend": self.backend, **options})
            return fn

        return register

    def build(self, **options):
        """Decorate a function that makes (program, [arguments of each call]) anew."""
        def register(fn):
            self.cases[fn.__name__] = lambda: same(fn, **{"backend": self.backend, **options})
            return fn

        return register

    def check(self, fn):
        """Decorate a function of `compile` that asserts by itself."""
        def compiling(target=None, **options):
            if target is None:
                return lambda f: compiling(f, **options)
            return lamina.compile(target, **{"backend": self.backend, **options})

        self.cases[fn.__name__] = lambda: fn(compiling)
        return fn
