"""Lists, tuples, dicts, sets, strings: what programs do with them inside a captured region."""

# ruff: noqa: E501, B006, B018, F524, F525, F841, UP031 - the programs are written as users write them

import collections
import types

import pytest
import torch
from differential import CASES, case, check

START = len(CASES)


@case([1, 2])
def list_methods(x, lst):
    lst.append(3)
    lst.extend((4, 5))
    lst.insert(0, 9)
    lst += [7]
    lst[1:3] = [8]
    del lst[-1]
    last = lst.pop()
    lst.reverse()
    return x + len(lst), last, lst.index(9), lst.count(4), lst[::-1], lst


@case([3, 1, 2], [3, 1, 2])
def list_sort(x, a, b):
    a.sort()
    b.sort(key=lambda v: -v)
    c = sorted(["bb", "a", "ccc"], key=len, reverse=True)
    return x * a[0], c, sorted({3: 1, 2: 2})


@case
def list_errors(x):
    out = []
    for bad in (
        lambda: [][0],
        lambda: [1].remove(2),
        lambda: [1, 2].index(3),
        lambda: [].pop(),
        lambda: [1].__getitem__("a"),
        lambda: [1] + (2,),
    ):
        try:
            bad()
        except (IndexError, ValueError, TypeError) as e:
            out.append((type(e).__name__, str(e)))
    return x + 1, out


@case
def aliases(x):
    a = [1]
    b = [a, a, {"k": a}]
    a.append(b)
    t = (a, x)
    return b, t, x + 1


@case([1])
def list_identity_kept(x, lst):
    other = lst
    other.append(x)
    return other is lst, lst, x * 2


@case([1, 2, 3])
def comparisons(x, lst):
    return (
        x + 1,
        lst == [1, 2, 3],
        lst < [1, 3],
        (1, 2) == (1, 2),
        (1, 2) < (1,),
        [1, [2]] == [1, [2]],
        lst != (1, 2, 3),
    )


@case({"a": 1, "b": 2})
def dict_methods(x, d):
    d["c"] = x
    first = d.pop("a")
    d.setdefault("z", []).append(1)
    d.update({"b": 5}, q=6)
    d |= {"m": 1}
    e = d | {"n": 2}
    keys, items = list(d), list(d.items())
    return x + first, keys, len(items), e, d.get("none", 3), "b" in d, dict(d) == d, d.popitem()


@case
def dict_order_and_views(x):
    d = {"one": 1, "two": 2}
    keys = d.keys()
    d["three"] = 3
    del d["one"]
    d["one"] = 11
    return (
        x + 1,
        list(keys),
        list(d.values()),
        keys & {"one", "zz"},
        list(reversed(d)),
        {k: v for k, v in zip(d, d.values())},
    )


@case({"a": {"b": [1]}})
def nested_mutation(x, d):
    d["a"]["b"].append(x + 1)
    d["a"]["c"] = d["a"]["b"]
    return d["a"]["b"][1] * 2


@case({"spam": 1, "ham": 2})
def key_removed_and_stored_again(x, d):
    d.pop("spam")
    gone = "spam" in d
    d["spam"] = 3
    del d["ham"]
    return x + 1, list(d), gone, d.get("ham")


@case
def dict_errors(x):
    out = []
    for fn in (lambda: {}["k"], lambda: {}.popitem(), lambda: {[]: 1}, lambda: {}.pop(3)):
        try:
            fn()
        except (KeyError, TypeError) as e:
            out.append((type(e).__name__, e.args))
    d = {1: 2}
    try:
        for k in d:
            d[k + 1] = 0
    except RuntimeError as e:
        out.append(str(e))
    return x + 1, out


@case({1: "int"})
def key_equality(x, d):
    d[1.0] = "float"
    d[True] = "bool"
    d[(1, 2)] = "tuple"
    return x + len(d), d, d[(1, 2)], d.get("1")


@case
def tensor_keys(x):
    d = {x: 1}
    y = x + 1
    d[y] = 2
    return y * d[x] + d[y], len(d), x in d


@case(collections.OrderedDict(a=1, b=2))
def ordered_dict(x, d):
    d.move_to_end("a")
    d["c"] = x
    d.move_to_end("c", last=False)
    first = d.popitem(last=False)
    e = collections.OrderedDict([("q", 1)])
    e.update(d)
    return x + 1, list(d), e, first[0], d == collections.OrderedDict(b=2, a=1), repr(e)


@case(collections.defaultdict(list, a=[1]))
def default_dict(x, d):
    d["new"].append(x)
    d["a"].append(2)
    e = collections.defaultdict(int)
    e["k"] += 5
    return d["new"][0] * 2, e, len(d), d.default_factory is list, e.get("nope")


@case
def counter(x):
    c = collections.Counter("abracadabra")
    c.update(["z"])
    c["q"] += 2
    return x * c["a"], c.most_common(2), c["missing"], sum(c.values()), c


@case
def chain_map(x):
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    m["c"] = 4
    n = m.new_child({"b": 9})
    return x + n["b"] + m["a"], sorted(m), len(n), m.maps[0]


@case({1, 2})
def sets(x, s):
    s.add(3)
    s.discard(1)
    s |= {7}
    t = s & {2, 3}
    u = frozenset(t) | {5}
    return x + len(s), t, u, 3 in s, s >= t, s ^ {2}, {frozenset([1]): 1}[frozenset([1])], s - t, s.isdisjoint({100})


@case(collections.deque([1, 2], maxlen=3))
def deques(x, d):
    d.append(3)
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    e = collections.deque("abc")
    e.extendleft("xy")
    return x + d[0], list(e), e.popleft(), d.maxlen, list(reversed(e)), e.index("a")


@case
def ranges_and_slices(x):
    r = range(10, 0, -3)
    s = slice(1, None, 2)
    return x[s], list(r), r[1], r[-1], 7 in r, len(r), list(range(5))[s], s.start, list(reversed(r)), s.indices(5)


@case("name")
def strings(x, s):
    parts = f"{s!r:>8}|{3.14159:.2f}|{len(s)}".split("|")
    t = "%s-%d %r" % (s, 5, [1, "a"])
    u = "{0.real} {k[a]} {}".format(3, k={"a": 1}) if False else "{} {k[a]}".format(3, k={"a": 1})
    return (
        x * 2,
        parts,
        t,
        u,
        s.upper().center(10, "*"),
        s[1:],
        "am" in s,
        "-".join(c for c in s),
        s * 2,
        s.encode(),
        b"ab"[0],
    )


@case
def unpacking(x):
    a, *b, c = [1, 2, 3, 4]
    (d, e), f = (x, 2), "z"
    g = [*b, *range(2)]
    h = {**{"a": 1}, "b": 2, **{"a": 3}}
    try:
        p, q = [1]
    except ValueError as err:
        text = str(err)
    return d + a, b, c, e, f, g, h, text


@case
def comprehensions(x):
    squares = [i * i for i in range(4) if i % 2]
    table = {i: j for i, j in enumerate("ab")}
    flat = {v for row in [[1], [2, 1]] for v in row}
    gen = sum(i for i in range(5))
    return x + gen, squares, table, flat, [x + i for i in range(2)]


@case(types.MappingProxyType({"a": 1}), make=lambda: (torch.ones(2), types.MappingProxyType({"a": 1})))
def mapping_proxy(x, m):
    try:
        m["b"] = 2
    except TypeError as e:
        text = str(e)
    return x + m["a"], dict(m), text, list(m.items()), len(m)


@case([1, 2])
def iterators_see_growth(x, lst):
    out = []
    for v in lst:
        if len(lst) < 5:
            lst.append(v * 10)
        out.append(v)
    return x + len(out), out


@case
def lazy_iterators(x):
    z = zip([1, 2, 3], "ab")
    first = next(z)
    e = enumerate(["p", "q"], 5)
    m = map(lambda a, b: a + b, [1, 2], [10, 20])
    f = filter(None, [0, 1, "", "a"])
    it = iter([1, 2])
    next(it)
    return (
        x + 1,
        first,
        list(z),
        list(e),
        list(m),
        list(f),
        next(it, "end"),
        next(it, "end"),
        it,
        list(reversed([1, 2])),
    )


@case
def iter_with_sentinel(x):
    values = [1, 2, 0, 3]
    return x + 1, list(iter(lambda: values.pop(0), 0)), values


@case([5, 6])
def returned_iterator(x, lst):
    it = iter(lst)
    next(it)
    return x + 1, it


@case([1, 2], {"k": 1})
def mutation_before_error(x, lst, d):
    lst.append(x * 2)
    d["new"] = len(lst)
    raise ValueError("after the change", lst[-1])


@case
def cyclic(x):
    a = [1]
    a.append(a)
    d = {}
    d["self"] = d
    d["list"] = a
    return d, x + 1


@case
def min_max_sum(x):
    return (
        x + max([3, 1]),
        min("b", "a"),
        max([1, 5, 3], key=lambda v: -v),
        sum([[1], [2]], []),
        max([], default=7),
        sum([0.1] * 3),
    )


@case(torch.Size([2, 3]), make=lambda: (torch.ones(2, 3),))
def sizes(x):
    s = x.shape
    return x + s[0], s, len(s), s[1:], s.numel(), list(s), s == (2, 3), isinstance(s, tuple), s + (1,)


@pytest.mark.parametrize(("name", "fn", "make", "full"), CASES[START:], ids=[c[0] for c in CASES[START:]])
def test_case(name, fn, make, full):
    check(fn, make, full)
