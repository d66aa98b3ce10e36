"""Random numbers of Python and numpy: drawn at each call, from the real generator, in the order of the program."""

import random
import signal
import threading

import numpy
import pytest
import torch

import lamina_dynamo

RNG = random.Random(5)
NUMPY_RNG = numpy.random.default_rng(5)
NUMPY_STATE = numpy.random.RandomState(5)
CAPTURED = []


def captured(fn):
    CAPTURED.append(fn)
    return fn


@captured
def several(x):
    return x * random.random() + random.uniform(-1, 2) * x.sin() - random.gauss(0, 1)


@captured
def floats_are_floats(x):
    a, b = random.random(), random.expovariate(2.0)
    return x + a * b, a, [b, a - b], {"a": a / 2}


@captured
def ints(x):
    return x * random.randint(1, 9) + random.randrange(2, 20, 3), random.getrandbits(20)


@captured
def an_index(x):
    return x[random.randrange(3)] * 2


@captured
def choices(x):
    more = sum(random.choices([1, 2, 3], k=4))
    return x * random.choice([1.5, 2.5, 4.0]) + more + random.sample([0.5, 1.5, 2.5], 2)[1]


@captured
def seeded(x):
    before = random.random()
    random.seed(11)
    y = x * random.random()
    random.seed(before)
    return y, before


@captured
def a_state_kept(x):
    state = random.getstate()
    y = x * random.random()
    random.setstate(state)
    return y - random.random()


@captured
def own_generator(x):
    return x * RNG.random() + RNG.gauss(0, 1) + RNG.randint(0, 5)


@captured
def of_numpy(x):
    return x * numpy.random.rand() + numpy.random.uniform(1, 2) - numpy.random.normal() + numpy.random.randint(0, 7)


@captured
def arrays(x):
    noise = torch.from_numpy(numpy.random.randn(3)).float()
    return x + noise * torch.from_numpy(numpy.random.permutation(3)), numpy.random.standard_normal((2, 2)).sum(axis=0)


@captured
def numpy_generators(x):
    return x * NUMPY_RNG.random() + torch.from_numpy(NUMPY_RNG.normal(size=3)) + NUMPY_STATE.uniform()


@captured
def made_inside(x):
    rng, other = random.Random(3), numpy.random.default_rng(4)
    items = [x, x * 2, x * 3]
    rng.shuffle(items)
    return items[0] + rng.choice(items) * rng.random() + torch.from_numpy(other.random(3)), rng, items


@captured
def made_inside_unseeded(x):
    rng = random.Random()
    return x * 0 + rng.random() * 0


@captured
def in_a_helper(x):
    def noisy(v):
        return v + random.random()

    return noisy(noisy(x))


@captured
def in_a_loop(x):
    for _ in range(4):
        x = x + random.random() * 0.1
    return x


@captured
def compared_with_bounds(x):
    p = random.random()
    return x * 2 if p < 0.0 else x * 3 if p <= 1.0 else x


@captured
def math_of_draws(x):
    r = random.uniform(1.0, 2.0)
    return x * abs(r) + max(0.5, 0.25) ** 2 - r**2


@captured
def wrong_arguments(x):
    try:
        y = x * random.randint(5, 1)
    except ValueError:
        y = x * random.random()
    return y


@captured
def printed(x):
    r = random.random()
    print("drew", 3)
    return x * r


def a_branch(x):
    return x * 2 if random.random() < 0.5 else x - 1


def a_dropped_layer(x):
    for k in range(3):
        if random.uniform(0, 1) < 0.5:
            continue
        x = x * (k + 2)
    return x


def a_list_index(x):
    return x * [2.0, 3.0, 4.0][random.randrange(3)]


def any_choice(x):
    return x * len(random.choice(["a", "bb", "ccc"]))


def shuffled(x):
    items = [1.0, 2.0, 3.0]
    random.shuffle(items)
    return x * items[0]


def numpy_shuffled(x):
    items = numpy.arange(3.0)
    numpy.random.shuffle(items)
    return x * torch.from_numpy(items)


def draws_around_a_break(x):
    a = random.random()
    lamina_dynamo.graph_break()
    return x * a + random.random()


def bytes_drawn(x):
    return x + len(random.randbytes(3)) + random.random()


def states():
    return (
        random.getstate(), RNG.getstate(), str(numpy.random.get_state()), str(NUMPY_RNG.bit_generator.state),
        str(NUMPY_STATE.get_state()),
    )  # fmt: skip


def picture(value):
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, value.tolist())
    if isinstance(value, numpy.ndarray):
        return ("array", str(value.dtype), value.tolist())
    if isinstance(value, (list, tuple)):
        return (type(value), [picture(v) for v in value])
    if isinstance(value, dict):
        return {k: picture(v) for k, v in value.items()}
    if isinstance(value, random.Random):
        return value.getstate()
    return (type(value), repr(value))


def outcomes(call, times=4):
    random.seed(1)
    RNG.seed(1)
    numpy.random.seed(1)
    NUMPY_STATE.seed(1)
    NUMPY_RNG.bit_generator.state = numpy.random.default_rng(1).bit_generator.state
    found = []
    for k in range(times):
        found.append(picture(call(torch.arange(3.0) + k)))
        found.append(states())
    return found


def compare(fn, backend="eager", **options):
    lamina_dynamo.reset()
    expected = outcomes(fn)
    assert outcomes(lamina_dynamo.optimize(backend, **options)(fn)) == expected


@pytest.mark.parametrize("fn", CAPTURED, ids=lambda f: f.__name__)
def test_captured_whole(fn):
    compare(fn, fullgraph=True)
    assert lamina_dynamo.counters()["compiled"] <= 2 and not lamina_dynamo.counters()["breaks"]


@pytest.mark.parametrize(
    "fn",
    [
        *CAPTURED, a_branch, a_dropped_layer, a_list_index, any_choice, shuffled, numpy_shuffled, draws_around_a_break,
        bytes_drawn,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
@pytest.mark.parametrize("dynamic", [None, True])
def test_streams_are_those_of_eager(fn, dynamic):
    compare(fn, dynamic=dynamic)


@pytest.mark.parametrize("fn", [a_branch, a_list_index, any_choice, shuffled, bytes_drawn], ids=lambda f: f.__name__)
def test_what_cannot_be_captured_says_so(fn):
    with pytest.raises(lamina_dynamo.GraphBreakError) as e:
        lamina_dynamo.optimize("eager", fullgraph=True)(fn)(torch.ones(3))
    assert e.value.kind in ("random_draw", "data_dependent_branch", "data_dependent_scalar") and e.value.hint


def test_a_graph_that_raises_draws_again_from_the_same_state():
    def f(x, index):
        a = random.random()
        try:
            y = x[index] * a
        except IndexError:
            y = x.sum() * a
        return y * random.random()

    lamina_dynamo.reset()
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(f)
    good, bad = torch.tensor([1]), torch.tensor([7])
    for call in (f, compiled):
        random.seed(2)
        results = [call(torch.arange(3.0), i).tolist() for i in (good, bad, good)]
        after = random.random()
        if call is f:
            expected = results, after
    assert (results, after) == expected


def test_a_graph_that_raises_where_the_program_has_a_signal_handler():
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        test_a_graph_that_raises_draws_again_from_the_same_state()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_replaced_function_is_noticed(monkeypatch):
    def f(x):
        return x * random.random()

    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(f)
    compiled(torch.ones(2))
    monkeypatch.setattr(random, "random", lambda: 4.0)
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]


def test_the_numbers_are_inputs_of_the_graph():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    def f(x):
        return x * random.random()

    compiled = lamina_dynamo.optimize(backend, fullgraph=True)(f)
    random.seed(0)
    results = {compiled(torch.ones(())).item() for _ in range(5)}
    assert len(results) == 5 and len(graphs) == 1
    assert [n.op for n in graphs[0].graph.nodes].count("placeholder") == 2


LOCK, REENTRANT = threading.Lock(), threading.RLock()


@pytest.mark.parametrize("lock", [LOCK, REENTRANT], ids=["lock", "reentrant"])
def test_a_lock_is_held_for_real(lock):
    held = []

    @lamina_dynamo.disable
    def look():
        held.append(not _other_thread_gets(lock))

    def f(x):
        y = x + 1
        with lock:
            look()
            y = y * 2
        look()
        return y - 1

    compiled = lamina_dynamo.optimize("eager")(f)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert held == [True, False] * 2
    with pytest.raises(lamina_dynamo.GraphBreakError) as e:
        lamina_dynamo.optimize("eager", fullgraph=True)(f)(torch.ones(2))
    assert e.value.kind == "lock"
    assert _other_thread_gets(lock)


def _other_thread_gets(lock):
    got = []

    def take():
        got.append(lock.acquire(blocking=False))
        if got[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return got[0]
