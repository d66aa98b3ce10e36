"""Shapes and strides by eager's rules, in plain Python; all functions also take SymInts.

The elementwise rule is the one of eager's iterator: equal layouts are kept, otherwise dimensions are ordered by the
strides of the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

Ints = Sequence[Any]


@lru_cache(4096)
def _contiguous_of(shape: tuple) -> tuple:
    out = []
    step = 1
    for n in reversed(shape):
        out.append(step)
        step *= n if n > 1 else 1
    return tuple(reversed(out))


def _kept(shape: tuple, what: str) -> tuple[dict[Any, Any], Any]:
    """(what was computed from symbolic shapes so far, the key of this one). Arithmetic on symbolic sizes costs a tenth
    of a millisecond a step, and the shapes of a graph are few. Kept by the shape environment of the symbols."""
    env = None
    key: list = []
    for n in shape:
        if type(n) is not int:
            n = getattr(n, "node", None)
            env = getattr(n, "shape_env", None)
            if env is None:
                return {}, None
        key.append(n)
    return env.__dict__.setdefault(what, {}), tuple(key)


def equal(a: Ints, b: Ints) -> bool:
    """Whether two rows of sizes or strides are equal. Of two numbers that are the same expression nothing is asked."""
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):
        if x is y:
            continue
        if type(x) is torch.SymInt and type(y) is torch.SymInt:
            m, n = x.node, y.node
            if m is n or m.expr == n.expr:
                continue
        if not x == y:
            return False
    return True


def contiguous(shape: Ints) -> tuple:
    """Row-major strides; a dimension of size 0 counts as 1."""
    shape = tuple(shape)
    for n in shape:
        if type(n) is not int:
            break
    else:
        return _contiguous_of(shape)
    known, key = _kept(shape, "_lamina_contiguous")
    found = known.get(key)
    if found is None:
        found = known[key] = _contiguous_of_symbols(shape)
    return found


def _contiguous_of_symbols(shape: tuple) -> tuple:
    out: list = []
    step: Any = 1
    for n in reversed(shape):
        out.append(step)
        if type(n) is int:
            step = step * (n if n > 1 else 1)
        else:
            step = step * n
    return tuple(reversed(out))


def channels_last(shape: Ints) -> tuple:
    """Strides of memory formats channels_last (4-d) and channels_last_3d (5-d)."""
    rank = len(shape)
    order = (1, 3, 2, 0) if rank == 4 else (1, 4, 3, 2, 0)
    out: list = [0] * rank
    step: Any = 1
    for d in order:
        out[d] = step
        n = shape[d]
        step = step * (n if type(n) is not int or n > 1 else 1)
    return tuple(out)


def is_int(n: Any, value: int) -> bool:
    """True if ``n`` is the plain int ``value``; symbolic sizes are never 0 or 1."""
    return type(n) is int and n == value


def has_zero(shape: Ints) -> bool:
    for n in shape:
        if type(n) is int and n == 0:
            return True
    return False


def is_contiguous(shape: Ints, stride: Ints) -> bool:
    if equal(stride, contiguous(shape)) or has_zero(shape):
        return True
    expect: Any = 1
    for n, s in zip(reversed(shape), reversed(stride)):
        if is_int(n, 1):
            continue
        if s != expect:
            return False
        expect = expect * n
    return True


def is_channels_last(shape: Ints, stride: Ints) -> bool:
    """Exactly dense in channels-last order (dimensions of size 1 do not count)."""
    if len(shape) not in (4, 5):
        return False
    order = (1, 3, 2, 0) if len(shape) == 4 else (1, 4, 3, 2, 0)
    expect: Any = 1
    for d in order:
        n = shape[d]
        if is_int(n, 1):
            continue
        if stride[d] != expect:
            return False
        expect = expect * n
    return True


def suggests_channels_last(shape: Ints, stride: Ints) -> bool:
    """Eager's ``suggest_memory_format``: strides grow in channels-last order, ambiguous cases count as contiguous."""
    rank = len(shape)
    if rank not in (4, 5):
        return False
    order = (1, 3, 2, 0) if rank == 4 else (1, 4, 3, 2, 0)
    if is_int(stride[1], 0):
        return False
    low: Any = 0
    for d in order:
        n, s = shape[d], stride[d]
        if is_int(n, 0):
            return False
        if s < low:
            return False
        if d == 0 and low is stride[1] or (d == 0 and low == stride[1]):
            return False
        low = s
        if n > 1:
            low = low * n
    return True


def is_dense(shape: Ints, stride: Ints) -> bool:
    """Non-overlapping and dense: some order of the dimensions makes it contiguous."""
    if is_contiguous(shape, stride):
        return True
    pairs = [(s, n) for n, s in zip(shape, stride) if not is_int(n, 1)]
    try:
        pairs.sort(key=lambda p: p[0])
    except TypeError:
        return False
    expect: Any = 1
    for s, n in pairs:
        if s != expect:
            return False
        expect = expect * n
    return True


def _order(shape: Ints, strides: Sequence[Ints]) -> list[int]:
    """Dimensions from innermost to outermost, as eager's iterator sorts them."""
    rank = len(shape)
    perm = list(range(rank - 1, -1, -1))
    for i in range(1, rank):
        hi = i
        for lo in range(i - 1, -1, -1):
            a, b = perm[lo], perm[hi]
            swap = 0
            for st in strides:
                sa, sb = st[a], st[b]
                if is_int(sa, 0) or is_int(sb, 0):
                    continue
                if sa is not sb and sa != sb:
                    swap = -1 if sa < sb else 1
                    break
                na, nb = shape[a], shape[b]
                if na is not nb and na > nb:
                    swap = 1
                    break
            if swap > 0:
                perm[lo], perm[hi] = b, a
                hi = lo
            elif swap < 0:
                break
    return perm


def _from_order(shape: Ints, perm: list[int]) -> tuple:
    out: list = [0] * len(shape)
    step: Any = 1
    for d in perm:
        out[d] = step
        step = step * shape[d]
    return tuple(out)


def elementwise(shape: tuple, operands: Sequence[tuple[Ints, Ints]]) -> tuple:
    """Strides of an elementwise result of ``shape`` from ``(shape, stride)`` of the tensor operands (before
    broadcasting).
    """
    rank = len(shape)
    same = True
    for s, _ in operands:
        if not equal(tuple(s), shape):
            same = False
            break
    plain = contiguous(shape)
    if same:
        first = tuple(operands[0][1])
        alike = True
        for _, st in operands:
            if not equal(tuple(st), first):
                alike = False
                break
        if alike and equal(first, plain):
            return plain
        every = True
        for s, st in operands:
            if not is_contiguous(s, st):
                every = False
                break
        if every:
            return plain
        if rank == 4 and all(is_channels_last(s, st) for s, st in operands):
            return channels_last(shape)
        if alike and is_dense(shape, first):
            return first
    elif rank <= 1:
        return plain
    full = []
    for s, st in operands:
        pad = rank - len(s)
        full.append(
            [0] * pad
            + [0 if is_int(n, 1) and not is_int(shape[pad + k], 1) else t for k, (n, t) in enumerate(zip(s, st))]
        )
    perm = _order(shape, full)
    if perm == list(range(rank - 1, -1, -1)):
        return plain
    return _from_order(shape, perm)


def like(shape: tuple, stride: Ints) -> tuple:
    """Strides of ``empty_like`` (preserve_format): dense inputs keep theirs, others get a dense order of theirs."""
    stride = tuple(stride)
    if equal(stride, contiguous(shape)):
        return stride
    if is_dense(shape, stride):
        return stride
    return elementwise(shape, [(shape, stride)])


def with_format(shape: tuple, stride: Ints, memory_format: Any) -> tuple:
    """Strides of a new tensor of ``shape`` under a memory_format argument (None means preserve)."""
    if memory_format is None or memory_format is torch.preserve_format:
        return like(shape, stride)
    if memory_format is torch.contiguous_format:
        return contiguous(shape)
    rank = 4 if memory_format is torch.channels_last else 5
    if len(shape) != rank:
        raise RuntimeError(f"required rank {rank} tensor to use channels_last{'' if rank == 4 else '_3d'} format")
    return channels_last(shape)


def view(shape: Ints, stride: Ints, new: Ints) -> tuple | None:
    """Strides that view ``shape``/``stride`` as ``new`` (same number of elements), or None where a copy is needed."""
    shape, stride, new = tuple(shape), tuple(stride), tuple(new)
    if equal(stride, contiguous(shape)) and not has_zero(shape):
        return contiguous(new)
    if has_zero(shape):
        return stride if shape == new else contiguous(new)
    if not shape:
        return (1,) * len(new)
    out: list = [0] * len(new)
    d = len(new) - 1
    base: Any = stride[-1]
    chunk: Any = 1
    have: Any = 1
    for i in range(len(shape) - 1, -1, -1):
        chunk = chunk * shape[i]
        if i == 0 or (not is_int(shape[i - 1], 1) and stride[i - 1] != chunk * base):
            while d >= 0 and (is_int(new[d], 1) or (have < chunk)):
                out[d] = have * base
                have = have * new[d]
                d -= 1
            if have is not chunk and have != chunk:
                return None
            if i > 0:
                base = stride[i - 1]
                chunk = have = 1
    return tuple(out) if d == -1 else None


def numel(shape: Ints) -> Any:
    shape = tuple(shape)
    n: Any = 1
    for s in shape:
        if type(s) is not int:
            break
        n = n * s
    else:
        return n
    known, key = _kept(shape, "_lamina_numel")
    found = known.get(key)
    if found is None:
        n = 1
        for s in shape:
            n = n * s
        found = known[key] = n
    return found


def infer_view(new: Ints, count: Any, shape: Ints = ()) -> tuple:
    """Replace one -1 in ``new``; raises RuntimeError as ``view`` does when the sizes do not fit."""
    new = tuple(new)
    if -1 not in [n for n in new if type(n) is int]:
        have = numel(new)
        for n in new:
            if type(n) is int and n < -1:
                raise RuntimeError(f"invalid shape dimension {n} at index {new.index(n)} of shape {list(new)}")
        if not equal((have,), (count,)):
            raise RuntimeError(f"shape '{list(new)}' is invalid for input of size {count}")
        return new
    known: Any = 1
    hole = -1
    for i, n in enumerate(new):
        if type(n) is int and n == -1:
            if hole >= 0:
                raise RuntimeError("only one dimension can be inferred")
            hole = i
        elif type(n) is int and n < 0:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(new)}")
        else:
            known = known * n
    if is_int(known, 0):
        if is_int(count, 0):
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(new)} because the unspecified dimension size -1"
                " can be any value and is ambiguous"
            )
        raise RuntimeError(f"shape '{list(new)}' is invalid for input of size {count}")
    if count % known != 0:
        raise RuntimeError(f"shape '{list(new)}' is invalid for input of size {count}")
    return new[:hole] + (count // known,) + new[hole + 1 :]


def broadcast(*shapes: Ints) -> tuple:
    """The common shape; raises RuntimeError with eager's text when sizes do not match."""
    first = tuple(shapes[0])
    for s in shapes[1:]:
        s = tuple(s)
        if equal(s, first):  # equal lengths first: comparing sizes may fix a symbol
            continue
        if len(s) > len(first):
            first, s = s, first
            flipped = True
        else:
            flipped = False
        off = len(first) - len(s)
        out = list(first)
        for i, n in enumerate(s):
            m = first[off + i]
            if m is n or is_int(n, 1):
                continue
            if is_int(m, 1):
                out[off + i] = n
            elif m != n:
                a, b = (n, m) if flipped else (m, n)
                raise RuntimeError(
                    f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton"
                    f" dimension {off + i}"
                )
        first = tuple(out)
    return first


def wrap_dim(dim: int, rank: int, wrap_scalar: bool = True) -> int:
    """Negative to non-negative dimension; raises IndexError with eager's text."""
    if rank == 0:
        if not wrap_scalar:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        rank = 1
    if -rank <= dim < rank:
        return dim + rank if dim < 0 else dim
    raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")


def wrap_dims(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimensions of a reduction: None and () mean all; repeats, and more than 64 dimensions, raise RuntimeError."""
    if rank > 64:
        raise RuntimeError("only tensors with up to 64 dims are supported")
    if dims is None:
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = (dims,)
    if not dims:
        return tuple(range(rank))
    out = []
    for d in dims:
        d = wrap_dim(d, rank)
        if d in out:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        out.append(d)
    return tuple(out) if rank else ()
