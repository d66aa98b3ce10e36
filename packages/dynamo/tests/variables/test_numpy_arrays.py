"""numpy arrays in a captured region are tensors of the graph; types, shapes, values and memory are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lamina_dynamo

DTYPES = ["float32", "float64", "float16", "int64", "int32", "uint8", "bool", "complex64"]


def made(dtype, *shape):
    n = int(np.prod(shape))
    base = (np.arange(n) % 5 + 1).reshape(shape)
    return (base > 2) if dtype == "bool" else base.astype(dtype)


def is_same(a, b):
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray) and a.dtype == object:
        return a.tolist() == b.tolist()
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, rtol=1e-3, equal_nan=True)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.allclose(a, b)
    return a == b


def there_and_back(x):
    a = x.numpy()
    b = np.sin(a) + a * 2
    return torch.from_numpy(b.reshape(-1)[1:]) * 2


def from_outside(a):
    return np.mean(a * 2 + 1, axis=0), np.concatenate([a, a]), a.T.sum(), a.astype(np.float64).std(0), a[:, None] > 0.5


def made_inside(a):
    return np.zeros((2, 3)) + a[:2, :3], np.arange(4) * a, np.where(a > 0, a, -a), np.float32(2) * a, a[0]


def metadata(a):
    return a.shape, a.ndim, len(a), a.dtype == np.float32, a.size, a.sum() * a.size


def products(a):
    return a @ a.T, np.dot(a, a.T), np.clip(a, 0, 1), a / 3, np.sqrt(a), a**2, [row + 1 for row in a]


def tensors_of_arrays(x):
    a = x.numpy()
    return torch.tensor(a * 2), torch.as_tensor(a, dtype=torch.float64), torch.tensor(a)


def shared_memory(x):
    a = x.numpy()
    x.add_(1)
    return a * 1, a, torch.from_numpy(a)


@pytest.mark.parametrize(
    "fn",
    [there_and_back, from_outside, made_inside, metadata, products, tensors_of_arrays, shared_memory],
    ids=lambda f: f.__name__,
)
def test_whole_graphs(fn):
    of_tensors = fn in (there_and_back, tensors_of_arrays, shared_memory)
    compiled = lamina_dynamo.optimize("eager", fullgraph=True)(fn)
    for shape in ((3, 4), (3, 4), (5, 4)):
        given = [made("float32", *shape) for _ in range(2)]
        if of_tensors:
            given = [torch.from_numpy(a) for a in given]
        assert is_same(compiled(given[0]), fn(given[1]))
        assert is_same(given[0], given[1])


def test_results_share_memory_as_in_eager():
    fn = lamina_dynamo.optimize("eager", fullgraph=True)(lambda a, x: (a[0], x.numpy(), torch.from_numpy(a), a))
    a, x = np.zeros((2, 2), np.float32), torch.zeros(2)
    row, b, t, same = fn(a, x)
    a += 1
    x += 1
    assert row.tolist() == [1, 1] and b.tolist() == [1, 1] and t.sum() == 4 and same is a


CALLS = {
    **{name: (lambda f: lambda a: f(a))(getattr(np, name)) for name in
       "sin exp log sqrt square absolute floor rint sign sum mean prod max min std var all any cumsum argmax argmin "
       "transpose ravel squeeze zeros_like ones_like isnan isfinite negative logical_not tanh".split()},
    **{name: (lambda f: lambda a: f(a, a[::1] * 1))(getattr(np, name)) for name in
       "add subtract multiply divide maximum fmin equal less logical_and arctan2 hypot".split()},
    "scalar": lambda a: (a + 1, a * 2.5, 1 - a if a.dtype != bool else a, a > 2, a + np.float64(1), a * np.int64(3)),
    "mixed": lambda a: (a + np.ones(4, np.int32), a * np.ones((3, 1), np.float32), a == np.arange(4)),
    "axis": lambda a: (a.sum(0), a.mean(axis=1, keepdims=True), np.max(a, axis=(0, 1)), a.cumsum(1), a.all(0)),
    "shape": lambda a: (a.reshape(2, -1), a.T, np.stack([a, a], 1), np.expand_dims(a, 0), np.tile(a, (2, 1))),
    "index": lambda a: (a[1], a[-1, 2], a[..., None], a[:, 1:3], a[[0, 2]], a[::2]),
    "type": lambda a: (a.astype("float64"), a.astype(np.int32), a.astype(float), np.full((2,), 3, dtype=a.dtype)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_types_and_values(name, dtype):
    lamina_dynamo.reset()
    a = made(dtype, 3, 4)
    try:
        want = CALLS[name](a)
    except Exception as e:
        with pytest.raises(type(e)):
            lamina_dynamo.optimize("eager")(CALLS[name])(a)
        return
    assert is_same(lamina_dynamo.optimize("eager")(CALLS[name])(a), want)


def test_what_is_left_to_eager():
    def assigned(a):
        b = a * 2
        b[0] = 7
        return b

    def branch(a):
        return a * 2 if a.sum() > 3 else a

    read_only = made("float32", 3)
    read_only.flags.writeable = False
    for fn, a in (
        (assigned, made("float32", 3)),
        (branch, made("float32", 3)),
        (np.sin, read_only),
        (lambda a: a * 2, made("float32", 6)[::-1]),
        (lambda a: a * 2, np.array(["a"], dtype=object)),
        (lambda a: a + a, np.array(["a"], dtype="U1").astype(object)),
    ):
        assert is_same(lamina_dynamo.optimize("eager")(lambda a, f=fn: f(a))(a), fn(a))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        lamina_dynamo.optimize("eager")(lambda a: 1 / (a - a))(made("float32", 3))
    with pytest.raises(RuntimeError, match="requires grad"):
        lamina_dynamo.optimize("eager")(lambda x: x.numpy() * 2)(torch.ones(2, requires_grad=True))
