"""The guards below one object as a whole.

Forty equal layers are guarded forty times in the same way. A `GuardPattern` is what is guarded below one of them: the
steps of its paths, and the checks at their ends. It is compared with another object in one walk, recorded for it as one
`PatternGuards`, and laid out for it in the guard program without making its guards one by one; who asks for them (a
recompile, an explanation) gets them made then.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..source import Scope, Source
from .kinds import KINDS, MISSING, Guard

__all__ = ["GuardPattern", "GuardTable", "PatternGuards", "expand_guards", "guards_on"]


class GuardPattern:
    """Completed guards on ``top`` and below it, each on one path.

    ``steps``: (position of the base, source) of position 1, 2, ...; position 0 is ``top`` itself. ``checks``:
    (position, guard) in the order in which they were assumed. ``places``: position of each source.
    """

    __slots__ = ("_checks", "_kinds", "checks", "places", "steps", "top")

    def __init__(self, top: Source, guards: Iterable[Guard], more: Iterable[Source] = ()) -> None:
        self.top = top
        self.places: dict[Source, int] = {top: 0}
        self.steps: list[tuple[int, Source]] = []
        self.checks: list[tuple[int, Guard]] = []
        for guard in guards:
            assert isinstance(guard.source, Source)
            self.checks.append((self._place(guard.source), guard))
        for source in more:
            self._place(source)
        bases = [0, *(base for base, _ in self.steps)]
        self._checks = [(k, KINDS[g.kind].check, g.value, KINDS[g.kind].missing_ok, bases[k]) for k, g in self.checks]
        self._kinds: list[tuple[int, type]] | None = None

    def _place(self, source: Source) -> int:
        found = self.places.get(source)
        if found is None:
            assert source.base is not None
            base = self._place(source.base)
            self.steps.append((base, source))
            found = self.places[source] = len(self.steps)
        return found

    def values(self, top: Any, scope: Scope) -> list[Any]:
        """What is found at each position from the object ``top``; MISSING where a step fails."""
        out = [top]
        for base, source in self.steps:
            value = out[base]
            if value is not MISSING:
                try:
                    value = source.step(value, scope)
                except Exception:  # whatever the access raises: the value is not there
                    value = MISSING
            out.append(value)
        return out

    def settle(self, values: list[Any]) -> None:
        """``values`` are those of ``top`` itself. The program reads some dicts by their class, which is one for all."""
        self._kinds = [(k, type(values[k])) for k, guard in self.checks if guard.kind == "DICT_KEYS"]

    def holds(self, values: list[Any]) -> bool:
        """Whether the checks hold for these values."""
        assert self._kinds is not None
        for k, kind in self._kinds:
            if type(values[k]) is not kind:
                return False
        try:
            for k, check, expected, missing_ok, base in self._checks:
                value = values[k]
                if value is MISSING and (not missing_ok or values[base] is MISSING):
                    return False
                if not check(value, expected):
                    return False
        except Exception:  # a value of another type: certainly not what was expected
            return False
        return True


class PatternGuards(NamedTuple):
    """The guards of ``pattern`` on and below ``source``. ``named``: position of sources that others speak about."""

    pattern: GuardPattern
    source: Source
    named: dict[Source, int]
    kind: str = "PATTERN"

    def __str__(self) -> str:
        return f"{len(self.pattern.checks)} guards below {self.source.name}"


def guards_on(source: Source, top: Source, guards: Iterable[Guard]) -> list[Guard]:
    """The same guards, with ``source`` in the place of ``top``."""
    moved: dict[Source, Source] = {top: source}

    def move(path: Source) -> Source:
        found = moved.get(path)
        if found is None:
            assert path.base is not None
            found = moved[path] = path.on_base(move(path.base))
        return found

    return [Guard(move(g.source), g.kind, g.value, g.stack) for g in guards]  # type: ignore[arg-type]


def expand_guards(guards: Iterable[Any]) -> Iterator[Guard]:
    """Each guard by itself."""
    for guard in guards:
        if type(guard) is PatternGuards:
            pattern = guard.pattern
            yield from guards_on(guard.source, pattern.top, (g for _, g in pattern.checks))
        else:
            yield guard


class GuardTable(Sequence[Guard]):
    """Guards by number. Those of a pattern are made when they are asked for."""

    def __init__(self) -> None:
        self._parts: list[list[Guard] | tuple[Source, Source, list[Guard]]] = []
        self._starts: list[int] = []
        self._count = 0

    def append(self, guard: Guard) -> None:
        """Add one guard."""
        if not self._parts or type(self._parts[-1]) is not list:
            self._parts.append([])
            self._starts.append(self._count)
        self._parts[-1].append(guard)  # type: ignore[union-attr]
        self._count += 1

    def append_pattern(self, source: Source, top: Source, guards: list[Guard]) -> None:
        """Add the guards, with ``source`` in the place of ``top``."""
        self._parts.append((source, top, guards))
        self._starts.append(self._count)
        self._count += len(guards)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Guard]:
        for part in self._parts:
            yield from part if type(part) is list else guards_on(*part)  # type: ignore[misc]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self)[index]
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(index)
        k = bisect.bisect_right(self._starts, index) - 1
        part, index = self._parts[k], index - self._starts[k]
        if type(part) is list:
            return part[index]
        source, top, guards = part  # type: ignore[misc]
        return guards_on(source, top, [guards[index]])[0]
