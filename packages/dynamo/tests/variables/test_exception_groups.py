"""Exception groups and except* inside a captured region (Python 3.11 and later)."""

import pytest
from differential import CASES, case, check

START = len(CASES)


@case([])
def exception_groups(x, log):
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError("k"), ExceptionGroup("h", [ValueError(2)])])
    except* ValueError as eg:
        log.append([str(e) for e in eg.exceptions])
    except* KeyError as eg:
        log.append(len(eg.exceptions))
    e = ValueError("n")
    e.add_note("note")
    return x + len(log), e.__notes__


@case([])
def except_star_splits_nested_groups(x, log):
    def run(group):
        try:
            try:
                raise group
            except* ValueError as eg:
                log.append(("values", [str(e) for e in eg.exceptions]))
            except* (KeyError, IndexError) as eg:
                log.append(("lookups", len(eg.exceptions)))
                raise RuntimeError("new")  # noqa: B904
        except BaseException as e:
            log.append((type(e).__name__, str(e), [type(i).__name__ for i in getattr(e, "exceptions", ())]))

    run(ExceptionGroup("a", [ValueError(1), ExceptionGroup("b", [ValueError(2), TypeError(3)])]))
    run(ExceptionGroup("a", [KeyError(1), TypeError(3)]))
    run(ValueError("naked"))
    run(OSError("other"))
    return x + len(log)


class Tagged(ExceptionGroup):
    def derive(self, excs):
        return Tagged(self.message + "!", excs)


@case([])
def groups_split_by_condition(x, log):
    g = Tagged("g", [ValueError(1), Tagged("h", [KeyError(2), ValueError(3)])])
    g.add_note("n")
    match, rest = g.split(ValueError)
    sub = g.subgroup(lambda e: isinstance(e, KeyError))
    log.append((type(match).__name__, match.message, len(match.exceptions), match.__notes__))
    log.append((rest.message, rest.exceptions[0].message, str(sub)))
    log.append(g.split(OSError)[0])
    return x + len(log), g.split(Exception)[0] is g


PROGRAMS = CASES[START:]


@pytest.mark.parametrize(("fn", "make", "full"), [c[1:] for c in PROGRAMS], ids=[c[0] for c in PROGRAMS])
def test_like_plain_python(fn, make, full):
    check(fn, make, full)
