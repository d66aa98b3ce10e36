"""What some opcodes do, written in Python so that translation can follow it like user code."""

from __future__ import annotations

_missing = object()

_SELF_MATCH = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def match_keys(subject, keys):
    """Values of ``keys`` in the mapping ``subject`` as a tuple, or None if one is missing."""
    values = []
    for key in keys:
        if key not in subject:
            return None
        values.append(subject[key])
    return tuple(values)


def rest_of_mapping(subject, keys):
    """What ``**rest`` of a mapping pattern binds."""
    rest = dict(subject)
    for key in keys:
        del rest[key]
    return rest


def match_class(subject, cls, count, names):
    """Attributes that a class pattern binds, or None if ``subject`` does not match."""
    if not isinstance(subject, cls):
        return None
    values = []
    if count:
        positional = getattr(cls, "__match_args__", None)
        if positional is None:
            if count > 1 or not issubclass(cls, _SELF_MATCH):
                raise TypeError(f"{cls.__name__}() accepts 0 positional sub-patterns ({count} given)")
            values.append(subject)
        else:
            if count > len(positional):
                raise TypeError(f"{cls.__name__}() accepts {len(positional)} positional sub-patterns ({count} given)")
            for i in range(count):
                if not hasattr(subject, positional[i]):
                    return None
                values.append(getattr(subject, positional[i]))
    for name in names:
        if not hasattr(subject, name):
            return None
        values.append(getattr(subject, name))
    return tuple(values)
