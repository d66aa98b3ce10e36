"""Programs made at random, each in two worlds: one thing that the program reads changes, the next call is eager's."""

import os
import random
import sys
import warnings
from pathlib import Path

import pytest
import torch

import lamina_dynamo

sys.path.insert(0, str(Path(__file__).parent))

import generated_worlds  # noqa: E402

ROUNDS = 8


class World:
    """The names of a program, which is called plain or captured."""

    def __init__(self, text, backend=None):
        self.names = {"__name__": "world", "x": torch.tensor([0.5, -1.0, 2.0])}
        exec(compile(text, "<world>", "exec"), self.names)
        f = self.names["f"]
        self.call = f if backend is None else lamina_dynamo.optimize(backend)(f)

    def change(self, text):
        try:
            exec(text, self.names)
        except Exception as e:  # a change may not fit any more after another
            return type(e).__name__
        return None

    def run(self):
        try:
            result = self.call(self.names["x"])
        except Exception as e:
            if isinstance(e, lamina_dynamo.DynamoError):
                raise
            return ("raised", type(e).__name__, str(e))
        if isinstance(result, torch.Tensor):
            return (result.dtype, tuple(result.shape), result.requires_grad, repr(result.tolist()))
        return (type(result).__name__, repr(result))


def modes():
    return (
        torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip


def set_modes(dtype=torch.float32, grad=True, autocast=False, deterministic=False):
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)
    torch.set_autocast_enabled("cpu", autocast)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture(autouse=True)
def plain_modes():
    yield
    set_modes()
    for name in [n for n in os.environ if n.startswith("LT_")]:
        del os.environ[name]
    lamina_dynamo.reset()


def check(seed, readings, backend="eager"):
    set_modes()
    rng = random.Random(seed)
    text, changes = generated_worlds.make(seed, readings)
    plain, captured = World(text), World(text, backend)
    done = []
    with lamina_dynamo.patch(recompile_limit=64), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(ROUNDS + 1):
            if step:
                done.append(rng.choice(changes))
                assert plain.change(done[-1]) == captured.change(done[-1]), (seed, done)
            before = modes()
            expected = plain.run()
            set_modes(*before)
            assert captured.run() == expected, f"program {seed} after {done}\n{text}"


@pytest.mark.parametrize("seed", range(60))
def test_a_change_is_noticed(seed):
    check(seed, 1 + seed % 4)


@pytest.mark.slow
def test_many_programs():
    for seed in range(1000, 2000):
        lamina_dynamo.reset()
        check(seed, 1 + seed % 4)
