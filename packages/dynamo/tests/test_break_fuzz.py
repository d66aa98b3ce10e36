"""Random programs that mix control flow, exceptions, context managers, generators and closures with tensor operations
and graph breaks; captured and plain runs must agree in results, logs and what is raised."""

import random
import sys

import pytest
import torch

import lamina_dynamo

PRELUDE = '''
import contextlib
import lamina_dynamo

LOG = []

def outside(v):
    LOG.append(("outside", v))
    return v

outside = lamina_dynamo.disable(outside)

class Manager:
    def __init__(self, tag, swallow=False):
        self.tag, self.swallow = tag, swallow
    def __enter__(self):
        LOG.append(("enter", self.tag))
        return self.tag
    def __exit__(self, kind, value, tb):
        LOG.append(("exit", self.tag, kind.__name__ if kind else None))
        return self.swallow

@contextlib.contextmanager
def scope(tag):
    LOG.append(("open", tag))
    try:
        yield tag
    finally:
        LOG.append(("shut", tag))

def gen(x, n):
    try:
        for i in range(n):
            LOG.append(("yield", i))
            yield x + i
    finally:
        LOG.append("gen end")

def callee(x, n, items):
    items.append(n)
    if n % 3 == 0:
        lamina_dynamo.graph_break()
    if n % 4 == 3:
        raise ValueError(n)
    return x * 2 + n
'''


class Maker:
    """Writes one program; `depth` bounds the nesting."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.names = 0

    def program(self) -> str:
        self.lines = ["def f(x, items, flag):", "    n = 1", "    y = x + 1"]
        for _ in range(self.random.randint(3, 6)):
            self.statement(1, False)
        self.lines.append("    return y, n, x")
        return PRELUDE + "\n".join(self.lines) + "\n"

    def add(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, depth: int, in_loop: bool, least: int = 1) -> None:
        for _ in range(self.random.randint(least, 2)):
            self.statement(depth, in_loop)

    def fresh(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def statement(self, depth: int, in_loop: bool) -> None:
        compound = [self.if_, self.for_, self.while_, self.try_, self.with_, self.function]
        simple = [self.tensor, self.tensor, self.number, self.break_, self.call, self.log, self.comprehension]
        if in_loop:
            simple.append(self.leave_loop)
        self.random.choice(simple if depth > 3 else simple + compound)(depth, in_loop)

    # simple statements

    def tensor(self, depth: int, in_loop: bool) -> None:
        self.add(
            depth,
            self.random.choice(
                ["y = y * 2 + n", "y = y + x", "y = (y - x).relu()", "x = x + n", "y = y.sin()", "y += 1", "x.add_(1)"]
            ),
        )

    def number(self, depth: int, in_loop: bool) -> None:
        self.add(depth, self.random.choice(["n += 1", "n = n * 2 % 7", "n = len(items) + n % 5", "items.append(n)"]))

    def break_(self, depth: int, in_loop: bool) -> None:
        self.add(
            depth,
            self.random.choice(
                ["lamina_dynamo.graph_break()", "n = outside(n) + 1", "y = outside(y)", "n += int(y.sum() > 0)"]
            ),
        )

    def call(self, depth: int, in_loop: bool) -> None:
        self.add(
            depth,
            self.random.choice(
                [
                    "y = callee(y, n, items)",
                    "y = [callee(y, 1, items), x][0]",
                    "y = sum(gen(y, 2), x)",
                    "y = next(gen(y, n % 3 + 1))",
                    "y = max(gen(y, 2), key=lambda t: n)",
                ]
            ),
        )

    def log(self, depth: int, in_loop: bool) -> None:
        self.add(depth, self.random.choice(["LOG.append(n)", "LOG.append(('y', y))", "print('n', n)"]))

    def comprehension(self, depth: int, in_loop: bool) -> None:
        self.add(
            depth,
            self.random.choice(
                [
                    "y = [y + i for i in range(3) if i != n][-1]",
                    "items += [outside(i) for i in range(2)]",
                    "y = sum((y * k for k in (1, 2)), x)",
                    "n = {k: v for k, v in zip('ab', (n, n + 1))}['b']",
                ]
            ),
        )

    def leave_loop(self, depth: int, in_loop: bool) -> None:
        self.add(depth, f"if n % {self.random.randint(2, 4)} == 0:")
        self.add(depth + 1, self.random.choice(["break", "continue"]))

    # compound statements

    def if_(self, depth: int, in_loop: bool) -> None:
        self.add(depth, self.random.choice(["if flag:", "if n % 2:", "if len(items) > 2:", "if y.sum() > 0:"]))
        self.block(depth + 1, in_loop)
        if self.random.random() < 0.5:
            self.add(depth, "else:")
            self.block(depth + 1, in_loop)

    def for_(self, depth: int, in_loop: bool) -> None:
        name = self.fresh()
        where = self.random.choice(["range(3)", "gen(x, 2)", "list(items)[:2]", "enumerate('ab')"])
        self.add(depth, f"for {name} in {where}:")
        self.block(depth + 1, True)
        if self.random.random() < 0.3:
            self.add(depth, "else:")
            self.block(depth + 1, in_loop)

    def while_(self, depth: int, in_loop: bool) -> None:
        name = self.fresh()
        self.add(depth, f"{name} = 0")
        self.add(depth, f"while {name} < 2:")
        self.add(depth + 1, f"{name} += 1")
        self.block(depth + 1, True)

    def try_(self, depth: int, in_loop: bool) -> None:
        self.add(depth, "try:")
        self.block(depth + 1, in_loop)
        if self.random.random() < 0.5:
            self.add(depth + 1, self.random.choice(["raise KeyError(n)", "if n % 2: raise ValueError('odd', n)"]))
        if self.random.random() < 0.8:
            name = self.fresh()
            kinds = self.random.choice(["ValueError", "(KeyError, ValueError)", "Exception"])
            self.add(depth, f"except {kinds} as {name}:")
            self.add(depth + 1, f"LOG.append(repr({name}))")
            self.block(depth + 1, in_loop, 0)
            if self.random.random() < 0.3:
                self.add(depth, "finally:")
                self.block(depth + 1, False)
        else:
            self.add(depth, "finally:")
            self.block(depth + 1, False)

    def with_(self, depth: int, in_loop: bool) -> None:
        manager = self.random.choice(
            ["Manager(n)", "Manager(n, True)", "scope(n)", "torch.no_grad()", "contextlib.suppress(ValueError)"]
        )
        self.add(depth, f"with {manager}:")
        self.block(depth + 1, in_loop)

    def function(self, depth: int, in_loop: bool) -> None:
        name = self.fresh()
        self.add(depth, f"def {name}(a):")
        self.add(depth + 1, "nonlocal_n = n")
        self.add(depth + 1, self.random.choice(["lamina_dynamo.graph_break()", "items.append(nonlocal_n)", "pass"]))
        self.add(depth + 1, "return a * 2 + nonlocal_n")
        self.add(depth, f"y = {name}(y)")


def picture(value):
    if isinstance(value, torch.Tensor):
        return "tensor", value.detach().tolist(), value.requires_grad
    if isinstance(value, (list, tuple)):
        return [picture(v) for v in value]
    return repr(value)


def run(text, capture, flag):
    scope = {"torch": torch, "__name__": "program"}
    exec(compile(text, "<program>", "exec"), scope)
    fn = scope["f"]
    if capture:
        fn = lamina_dynamo.optimize("eager")(fn)
    outcomes = []
    for _ in range(2):
        scope["LOG"].clear()
        x, items = torch.tensor([0.5, -1.0]), [5]
        try:
            result = ("returned", picture(fn(x, items, flag)))
        except (lamina_dynamo.DynamoError, AssertionError):
            raise
        except Exception as e:
            result = ("raised", type(e).__name__, picture(e.args))
        outcomes.append((result, picture(x), picture(items), picture(scope["LOG"])))
        outcomes.append(("handled", repr(sys.exc_info()[0]), torch.is_grad_enabled()))
    return outcomes


def check(seed, capsys=None):
    text = Maker(seed).program()
    flag = seed % 2 == 0
    plain = run(text, False, flag)
    printed = capsys.readouterr().out if capsys else None
    lamina_dynamo.reset()
    captured = run(text, True, flag)
    assert captured == plain, text[len(PRELUDE) :]
    if capsys:
        assert capsys.readouterr().out == printed, text[len(PRELUDE) :]


@pytest.mark.parametrize("seed", range(40))
def test_random_program(seed, capsys):
    check(seed, capsys)


@pytest.mark.slow
def test_many_random_programs(request):
    for seed in range(1000, 1400):
        check(seed)
