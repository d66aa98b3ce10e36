"""Which sizes, ints and floats become symbolic.

With ``dynamic=None`` the first translation of a frame takes everything as it is; what differs at a later one is
symbolic from then on.
Sizes 0 and 1 are never symbolic on their own: eager broadcasts and lays out such dimensions in another way, so a
graph made for "some size"
would not be right for them. `FrameState` is that memory, one for a frame and owner; `mark_dynamic` and `mark_static`
overrule it.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch

#: symbolic numbers of one frame; long lists of changing numbers are data, not sizes
_MOST_NUMBERS = 32

__all__ = ["FrameState", "mark_dynamic", "mark_static", "marks_of"]

# Guards and graphs calculate with 64 bits, in which a product of two such numbers still fits; a number like a seed or
# an address is taken as it is.
LARGEST_SYMBOLIC = (1 << 31) - 1


class Marks:
    """Marks of one tensor: dimension → (smallest, largest) size or None for no bound; and the dimensions that stay
    static.
    """

    __slots__ = ("dynamic", "static")

    def __init__(self) -> None:
        self.dynamic: dict[int, tuple[int | None, int | None]] = {}
        self.static: set[int] = set()


# By identity: the tensor itself is not touched, and a mark goes when the tensor goes.
_marks: dict[int, tuple[weakref.ref[torch.Tensor], Marks]] = {}


def _marks_for(tensor: torch.Tensor) -> Marks:
    key = id(tensor)
    found = _marks.get(key)
    if found is not None and found[0]() is tensor:
        return found[1]
    marks = Marks()
    _marks[key] = (weakref.ref(tensor, lambda _: _marks.pop(key, None)), marks)
    return marks


def marks_of(tensor: torch.Tensor) -> Marks | None:
    """Marks of a tensor, or None."""
    if not _marks:
        return None
    found = _marks.get(id(tensor))
    return found[1] if found is not None and found[0]() is tensor else None


def _dims(tensor: torch.Tensor, dims: int | list[int] | tuple[int, ...] | None) -> list[int]:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a tensor is needed, got {type(tensor).__name__}")
    chosen = range(tensor.dim()) if dims is None else dims if isinstance(dims, list | tuple) else (dims,)
    result = []
    for dim in chosen:
        if not isinstance(dim, int):
            raise TypeError(f"a dimension is an integer (dims: one, several in a list, or None for all), not {dim!r}")
        if not -tensor.dim() <= dim < tensor.dim():
            raise IndexError(f"dimension {dim} of a tensor with {tensor.dim()} dimensions")
        result.append(dim % tensor.dim())
    return result


def mark_dynamic(
    tensor: torch.Tensor,
    dims: int | list[int] | tuple[int, ...] | None = None,
    *,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """The size of these dimensions (None: of all) varies: make it symbolic at the first compilation. ``min`` and
    ``max`` bound it, in elements.

    Raises TypeError for a non-tensor or a bound that is no integer, IndexError for a dimension that is not there,
    ValueError for an empty range or a negative bound.
    """
    for name, bound in (("min", min), ("max", max)):
        if bound is not None and not isinstance(bound, int):
            raise TypeError(f"{name} is a number of elements or None, not {bound!r}")
        if bound is not None and bound < 0:
            raise ValueError(f"{name} is a number of elements and cannot be {bound}")
    if min is not None and max is not None and min > max:
        raise ValueError(f"empty range: min {min} > max {max}")
    for dim in _dims(tensor, dims):
        marks = _marks_for(tensor)
        marks.static.discard(dim)
        marks.dynamic[dim] = (min, max)


def mark_static(tensor: torch.Tensor, dims: int | list[int] | tuple[int, ...] | None = None) -> None:
    """The size of these dimensions (None: of all) is part of the program: compile again when it changes. Raises as
    `mark_dynamic`.
    """
    for dim in _dims(tensor, dims):
        marks = _marks_for(tensor)
        marks.dynamic.pop(dim, None)
        marks.static.add(dim)


def is_argument(source: Any) -> bool:
    """Whether the value at ``source`` is an argument of the frame, or an item of containers that are."""
    from .roots import LocalSource
    from .source import DictValueSource, ItemSource

    while isinstance(source, (ItemSource, DictValueSource)):
        source = source.base
    return isinstance(source, LocalSource)


class FrameState:
    """What was seen at earlier translations of a frame, by source. ``mode`` is the setting ``dynamic`` (None, True
    or False).
    """

    def __init__(self, mode: bool | None = None) -> None:
        self.mode = mode
        self.recompiles = 0
        self.gave_up = False
        self.generalised = False
        self._numbers: dict[Any, Any] = {}
        self._symbolic_numbers: set[Any] = set()
        self._sizes: dict[Any, tuple[int, ...]] = {}
        self._symbolic_dims: dict[Any, set[int]] = {}
        self._strides: dict[Any, tuple[int, ...]] = {}
        self._symbolic_strides: dict[Any, set[int]] = {}

    def generalise(self) -> None:
        """The limit of recompiles is reached: from now on every number that may be symbolic is."""
        self.generalised = True

    def _eager_to_generalise(self) -> bool:
        return self.mode is True or (self.generalised and self.mode is not False)

    def is_symbolic_number(self, source: Any, value: int | float) -> bool:
        """Whether the int or float at ``source`` becomes symbolic in this translation. Remembers the value."""
        if isinstance(value, bool) or self.mode is False:
            return False
        if isinstance(value, int) and abs(value) > LARGEST_SYMBOLIC:
            return False
        if isinstance(value, float) and not math.isfinite(value):
            return False  # symbolic algebra is that of finite numbers
        if source in self._symbolic_numbers:
            pass
        elif source in self._numbers and type(self._numbers[source]) is type(value):
            old = self._numbers[source]
            if old != value and not (old != old and value != value) and len(self._symbolic_numbers) < _MOST_NUMBERS:
                self._symbolic_numbers.add(source)
        self._numbers[source] = value
        if source not in self._symbolic_numbers and not self.generalised:
            # Attributes, globals and floats are settings (`self.eps`, `self.heads`): static until one differs.
            if self.mode is not True or isinstance(value, float) or not is_argument(source):
                return False
        return not (isinstance(value, int) and value in (0, 1))

    def symbolic_dims(self, source: Any, tensor: torch.Tensor) -> frozenset[int]:
        """Dimensions of the tensor at ``source`` whose size becomes symbolic in this translation. Remembers the
        sizes.
        """
        sizes = tuple(int(s) for s in tensor.shape)
        marks = marks_of(tensor)
        chosen: set[int] = set()
        if self.mode is not False:
            known = self._symbolic_dims.setdefault(source, set())
            old = self._sizes.get(source)
            if old is not None and len(old) == len(sizes):
                known.update(i for i, (a, b) in enumerate(zip(old, sizes)) if a != b)
            elif old is not None:
                known.clear()
            chosen = set(range(len(sizes))) if self._eager_to_generalise() else {i for i in known if i < len(sizes)}
            if isinstance(tensor, torch.nn.Parameter) and self.mode is True and not self.generalised:
                chosen = set(
                    known
                )  # weights do not change shape between calls; one layer serving many shapes is found by recompiling
        self._sizes[source] = sizes
        chosen = {i for i in chosen if sizes[i] not in (0, 1)}
        if marks is not None:
            chosen -= marks.static
            chosen |= {i for i in marks.dynamic if sizes[i] not in (0, 1)}
        return frozenset(chosen)

    def symbolic_strides(self, source: Any, tensor: torch.Tensor) -> frozenset[int]:
        """Dimensions of the tensor at ``source`` whose stride may become symbolic in this translation: it differed
        before (``x[:, -1:]`` of an ``x`` that grows). Remembers the strides.
        """
        if self.mode is False:
            return frozenset()
        strides = tuple(int(s) for s in tensor.stride())
        known = self._symbolic_strides.setdefault(source, set())
        old = self._strides.get(source)
        if old is not None and len(old) == len(strides):
            known.update(i for i, (a, b) in enumerate(zip(old, strides)) if a != b)
        elif old is not None:
            known.clear()
        self._strides[source] = strides
        marks = marks_of(tensor)
        fixed = marks.static if marks is not None else ()
        return frozenset(i for i in known if strides[i] not in (0, 1) and tensor.shape[i] > 1 and i not in fixed)

    def bounds(self, tensor: torch.Tensor, dim: int) -> tuple[int | None, int | None]:
        """Range given with `mark_dynamic`, in elements."""
        marks = marks_of(tensor)
        return marks.dynamic.get(dim, (None, None)) if marks is not None else (None, None)
