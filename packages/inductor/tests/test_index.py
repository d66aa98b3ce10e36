"""Index expressions: simplifications agree with plain integers."""

import doctest

from hypothesis import given, settings
from hypothesis import strategies as st

import lamina_inductor.index as index
from lamina_inductor.index import coefficient, const, evaluate, is_less, maximum, minimum, product, substitute, symbol

SIZES = {"i": 4, "j": 6, "k": 5}


def expressions():
    leaves = st.one_of(
        st.integers(-8, 40).map(const), st.sampled_from(sorted(SIZES)).map(lambda n: symbol(n, SIZES[n]))
    )

    def grow(children):
        positive = st.sampled_from([1, 2, 3, 4, 6, 8, 12])
        return st.one_of(
            st.tuples(children, children).map(lambda t: t[0] + t[1]),
            st.tuples(children, st.integers(-6, 12)).map(lambda t: t[0] * t[1]),
            st.tuples(children, positive).map(lambda t: t[0] // t[1]),
            st.tuples(children, positive).map(lambda t: t[0] % t[1]),
            st.tuples(children, children).map(lambda t: minimum(*t)),
            st.tuples(children, children).map(lambda t: maximum(*t)),
        )

    return st.recursive(leaves, grow, max_leaves=8)


@settings(max_examples=300, deadline=None)
@given(expressions(), expressions(), st.sampled_from([1, 2, 3, 4, 6, 8, 24]))
def test_simplified_expressions_have_the_same_value(a, b, n):
    combined = [(a + b, lambda x, y: x + y), (a * b, lambda x, y: x * y), (a // n, lambda x, y: x // n)]
    combined += [(a % n, lambda x, y: x % n), (a - b, lambda x, y: x - y)]
    for i in range(4):
        for j in (0, 1, 5):
            env = {"i": i, "j": j, "k": (i + j) % 5}
            x, y = evaluate(a, env), evaluate(b, env)
            for e, fn in combined:
                value = evaluate(e, env)
                assert value == fn(x, y)
                assert e.lo <= value <= e.hi
                assert eval(str(e), {}, env) == value
            if is_less(a, b):
                assert x < y


def test_docstring_examples():
    assert doctest.testmod(index).failed == 0


def test_equal_expressions_are_one_object():
    i, j = symbol("i", 4), symbol("j", 8)
    assert i * 8 + j is j + 8 * i
    assert (i + j) * 2 is 2 * i + 2 * j


def test_symbolic_sizes():
    n, m = symbol("n", lo=1), symbol("m", lo=1)
    i, j = symbol("i", n), symbol("j", m)
    flat = i * m + j
    assert flat // m is i
    assert flat % m is j
    assert is_less(flat, n * m)
    assert (n * m) // m is n
    assert product([n, m, 2]) is n * m * 2


def test_coefficient():
    i, j, n = symbol("i", 4), symbol("j", 8), symbol("n", lo=1)
    assert coefficient(i * 8 + j * n, "j") is n
    assert coefficient(i * 8, "j") == 0
    assert coefficient((i * 3 + j) // 2, "j") is None
    assert coefficient(i * i, "i") is None


def test_substitute():
    i, j, m = symbol("i", 4), symbol("j", 8), symbol("m", 32)
    assert substitute(i * 8 + j, {"i": m // 8, "j": m % 8}) is m


def test_forgetting_keeps_expressions_usable(monkeypatch):
    monkeypatch.setattr(index, "_TABLE_LIMIT", 20)
    i, j = symbol("i", 4), symbol("j", 8)
    e = i * 8 + j
    for k in range(100):
        e = e + symbol(f"x{k}", 3) * k
    for k in range(100):
        e = e - symbol(f"x{k}", 3) * k
    assert e == i * 8 + j
    assert (e // 8) == i and (e % 8) == j
