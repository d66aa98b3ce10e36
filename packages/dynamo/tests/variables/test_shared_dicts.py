"""Instance dicts that the program reaches by other ways, too: mappings with attributes, state shared by objects."""

import torch

from lamina_dynamo import optimize


class Attributes(dict):
    """The usual settings object whose keys are attributes."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.__dict__ = self


class Shared:
    state = {}

    def __init__(self):
        self.__dict__ = Shared.state


def same(program, make, calls=3, **options):
    compiled = optimize("eager", **options)(program)
    for i in range(calls):
        mine, yours = make(i), make(i)
        want = program(torch.ones(2), *mine)
        got = compiled(torch.ones(2), *yours)
        assert repr((want, mine)) == repr((got, yours))


def test_keys_are_attributes():
    def program(x, c):
        c.b = x.sum()
        c["c"] = 4
        seen = [c["b"], c.c, "b" in c, hasattr(c, "c"), list(c), len(c), list(vars(c)), vars(c) is c]
        c["a"] = c.a + 1
        del c.c
        c.update(z=c.a)
        seen += ["c" in c, c.z, getattr(c, "nope", 3), c.pop("z"), hasattr(c, "z"), {**c}]
        return x + c.a, seen

    same(program, lambda i: (Attributes(a=i),), fullgraph=True)


def test_made_inside():
    def program(x):
        c = Attributes(a=1)
        c.b = 2
        c["c"] = x
        return x + c.a + c["b"], c

    plain, compiled = program(torch.ones(2)), optimize("eager", fullgraph=True)(program)(torch.ones(2))
    assert repr(plain) == repr(compiled)
    assert compiled[1].__dict__ is compiled[1] and compiled[1].c is compiled[1]["c"]


def test_state_of_several_objects():
    def program(x):
        p, q = Shared(), Shared()
        p.v = x
        p.n = getattr(q, "n", 0) + 1
        del q.v
        q.w = [p.n]
        return x * p.n, hasattr(p, "v"), p.w is q.w, vars(p) is vars(q), vars(p) is Shared.state

    compiled = optimize("eager", fullgraph=True)(program)
    outcomes = []
    for f in (program, compiled):
        Shared.state.clear()
        outcomes.append(repr([f(torch.ones(1)) for _ in range(3)] + [Shared.state]))
    assert outcomes[0] == outcomes[1]


def test_objects_from_outside_that_share():
    def program(x, p, q, table):
        p.a = x.sum()
        q.b = p.a + 1
        table["c"] = q.a
        return x + p.c, list(vars(q)), sorted(table)

    def make(i):
        a, b = object.__new__(Shared), object.__new__(Shared)
        a.__dict__ = b.__dict__ = table = {"start": i}
        return a, b, table

    compiled = optimize("eager")(program)
    for i in range(2):
        mine, yours = make(i), make(i)
        assert repr(program(torch.ones(2), *mine)) == repr(compiled(torch.ones(2), *yours))
        assert mine[2] == yours[2] and vars(yours[0]) is yours[2]
