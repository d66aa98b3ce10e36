"""A backend in numpy: it takes any decomposed graph, implements the prims it meets, and runs it.

    python examples/tiny_backend/tiny_backend.py    # one small model in numpy, beside eager; no compiler is imported

A new backend needs one function a prim. ``lamina_primtorch.completeness(graphs, names)`` tells which ones a set of
models needs and which of them are missing; the run above prints it for this backend.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import torch
import torch.fx as fx

import lamina_primtorch as lp

DTYPE = {
    torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64,
    torch.int32: np.int32, torch.int16: np.int16,
    torch.int8: np.int8, torch.uint8: np.uint8, torch.bool: np.bool_, torch.float16: np.float16,
}  # fmt: skip

_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: np.ndarray) -> np.ndarray:
    return _erf(x).astype(x.dtype) if x.size else x


def broadcast_in_dim(x: np.ndarray, shape: Any, dims: Any) -> np.ndarray:
    sizes = [1] * len(shape)
    for k, d in enumerate(dims):
        sizes[d] = x.shape[k]
    return np.broadcast_to(x.reshape(sizes), shape)


def cut(x: np.ndarray, starts: Any, limits: Any, steps: Any) -> np.ndarray:
    return x[tuple(slice(lo, hi, step) for lo, hi, step in zip(starts, limits, steps, strict=True))]


def pad(x: np.ndarray, value: Any, low: Any, high: Any) -> np.ndarray:
    return np.pad(x, list(zip(low, high, strict=True)), constant_values=value)


def var_mean(x: np.ndarray, dims: Any, correction: float) -> tuple:
    n = math.prod(x.shape[d] for d in dims)
    mean = x.mean(axis=tuple(dims), dtype=x.dtype)
    square = ((x - x.mean(axis=tuple(dims), keepdims=True)) ** 2).sum(axis=tuple(dims))
    return (square / max(n - correction, 0)).astype(x.dtype), mean


def gather(x: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    return np.take_along_axis(
        x[tuple(slice(n) if d != dim else slice(None) for d, n in enumerate(index.shape))], index, dim
    )


def index_put(x: np.ndarray, indices: Any, values: np.ndarray, accumulate: bool) -> np.ndarray:
    out = x.copy()
    where = tuple(slice(None) if i is None else i for i in indices)
    if accumulate:
        np.add.at(out, where, values)
    else:
        out[where] = values
    return out


def embedding_dense_backward(
    grad: np.ndarray, index: np.ndarray, num: int, padding_idx: int, scale: bool
) -> np.ndarray:
    out = np.zeros((num, grad.shape[-1]), grad.dtype)
    np.add.at(out, index.reshape(-1), grad.reshape(-1, grad.shape[-1]))
    if padding_idx >= 0:
        out[padding_idx] = 0
    return out


def windows(x: np.ndarray, kernel: Any, stride: Any, dilation: Any) -> np.ndarray:
    """(N, C, H, W) -> view (N, C, out_h, out_w, kh, kw)."""
    (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation
    full = np.lib.stride_tricks.sliding_window_view(x, ((kh - 1) * dh + 1, (kw - 1) * dw + 1), axis=(2, 3))
    return full[:, :, ::sh, ::sw, ::dh, ::dw]


def convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed or x.ndim != 4:
        raise NotImplementedError("this backend convolves in two dimensions, forward only")
    ph, pw = padding
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    parts = []
    for g in range(groups):
        ci, co = w.shape[1], w.shape[0] // groups
        win = windows(x[:, g * ci : (g + 1) * ci], w.shape[2:], stride, dilation)
        parts.append(np.einsum("nchwij,ocij->nohw", win, w[g * co : (g + 1) * co], optimize=True))
    out = np.concatenate(parts, 1)
    return out if bias is None else out + bias[:, None, None]


def max_pool2d(x, kernel, stride=(), padding=(0, 0), dilation=(1, 1), ceil_mode=False):
    if ceil_mode:
        raise NotImplementedError("ceil_mode")
    ph, pw = padding
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=-np.inf)
    win = windows(padded, kernel, stride or kernel, dilation)
    flat = win.reshape(*win.shape[:4], -1)
    best = flat.argmax(-1)
    rows = np.arange(win.shape[2])[:, None] * (stride or kernel)[0] + best // kernel[1] * dilation[0] - ph
    cols = np.arange(win.shape[3]) * (stride or kernel)[1] + best % kernel[1] * dilation[1] - pw
    return flat.max(-1), rows * x.shape[3] + cols


def full(shape: Any, value: Any, dtype: torch.dtype, device: Any) -> np.ndarray:
    return np.full(shape, value, DTYPE[dtype])


def iota(length: int, start: int, step: int, dtype: torch.dtype, device: Any) -> np.ndarray:
    return (np.arange(length) * step + start).astype(DTYPE[dtype])


def fold(fn: Any) -> Any:
    return lambda x, dims: fn(x, axis=tuple(dims)) if len(dims) else x


# One entry a prim. Elementwise ones are numpy's own.
NUMPY: dict[str, Any] = {
    name: getattr(np, name)
    for name in "exp log log1p expm1 sqrt reciprocal sin cos tan tanh sinh cosh floor ceil trunc sign isnan"
                " isinf isfinite signbit"
    " logical_not maximum minimum fmax fmin hypot copysign nextafter".split()
} | {
    "neg": operator.neg, "abs": np.abs, "erf": erf, "rsqrt": lambda x: 1 / np.sqrt(x), "round": np.rint,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "div": operator.truediv,
    "remainder": np.mod, "fmod": np.fmod, "pow": np.power, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "bitwise_not": operator.invert, "where": np.where,
    "convert_element_type": lambda x, dtype: x.astype(DTYPE[dtype]),
    "broadcast_in_dim": broadcast_in_dim, "permute": np.transpose, "reshape": np.reshape, "slice": cut,
    "flip": np.flip,
    "restride": lambda x, stride: x, "diagonal": np.diagonal, "cat": lambda xs, dim: np.concatenate(xs, dim),
    "pad": pad,
    "sum": lambda x, dims, dtype: x.astype(DTYPE[dtype]).sum(axis=tuple(dims)).astype(DTYPE[dtype]),
    "prod": lambda x, dims, dtype: x.astype(DTYPE[dtype]).prod(axis=tuple(dims)),
    "amax": fold(np.max), "amin": fold(np.min), "any": fold(np.any), "all": fold(np.all), "var_mean": var_mean,
    "argmax": lambda x, dim: np.argmax(x, dim), "argmin": lambda x, dim: np.argmin(x, dim),
    "cumsum": lambda x, dim: x.cumsum(dim),
    "gather": gather, "take_rows": lambda x, index: x[index],
    "index_select": lambda x, dim, index: np.take(x, index, dim),
    "index": lambda x, indices: x[tuple(slice(None) if i is None else i for i in indices)], "index_put": index_put,
    "full": full, "iota": iota, "mm": np.matmul, "bmm": np.matmul, "mv": np.matmul, "dot": np.dot,
    "addmm": lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
    "baddbmm": lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
    "convolution": convolution, "max_pool2d": max_pool2d, "embedding_dense_backward": embedding_dense_backward,
}  # fmt: skip


class Missing(NotImplementedError):
    """A graph needs a prim that this backend does not have."""


def to_numpy(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, torch.Tensor) else x


def compile_graph(gm: fx.GraphModule) -> Any:
    """A callable over torch tensors for a flat ATen (or already decomposed) graph. Raises Missing with the names of
    absent prims.
    """
    low = lp.decompose(gm)
    absent = sorted(
        {
            str(n.target)
            for n in low.graph.nodes
            if n.op == "call_function" and _name(n.target) not in NUMPY and n.target is not operator.getitem
        }
    )
    if absent:
        raise Missing(f"prims this backend lacks: {', '.join(absent)}")
    nodes = list(low.graph.nodes)

    def run(*inputs: torch.Tensor) -> tuple:
        env: dict[fx.Node, Any] = {}
        given = iter(inputs)
        for node in nodes:
            if node.op == "placeholder":
                env[node] = to_numpy(next(given))
            elif node.op == "get_attr":
                env[node] = to_numpy(getattr(low, node.target))
            elif node.op == "call_function":
                args = fx.node.map_arg(node.args, env.__getitem__)
                kwargs = fx.node.map_arg(node.kwargs, env.__getitem__)
                fn = operator.getitem if node.target is operator.getitem else NUMPY[_name(node.target)]
                with np.errstate(all="ignore"):
                    out = fn(*args, **kwargs)
                val = node.meta.get("val")
                if hasattr(val, "dtype"):
                    out = np.asarray(out, DTYPE[val.dtype])
                env[node] = out
        outs = fx.node.map_arg(nodes[-1].args[0], env.__getitem__)
        return tuple(torch.from_numpy(np.ascontiguousarray(o)) if isinstance(o, np.ndarray) else o for o in outs)

    return run


def _name(target: Any) -> str:
    return target.name if isinstance(target, lp.Prim) else str(target)


def trace(fn: Any, *inputs: torch.Tensor) -> fx.GraphModule:
    """A flat ATen graph of ``fn`` by a small dispatch mode: enough for this example (lamina-aot-autograd does it
    properly).
    """
    graph = fx.Graph()
    known: dict[int, fx.Node] = {}
    alive = list(inputs)
    for k, x in enumerate(inputs):
        known[id(x)] = graph.placeholder(f"x{k}")
        known[id(x)].meta["val"] = x
    constants: dict[str, torch.Tensor] = {}

    def node_of(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in known:
            name = f"constant{len(constants)}"
            constants[name] = x
            known[id(x)] = graph.get_attr(name)
            known[id(x)].meta["val"] = x
            alive.append(x)
        return known[id(x)]

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            out = func(*args, **(kwargs or {}))
            node = graph.call_function(func, *torch.utils._pytree.tree_map(node_of, (args, kwargs or {})))
            node.meta["val"] = out
            alive.append(out)
            if isinstance(out, (tuple, list)):
                for k, o in enumerate(out):
                    known[id(o)] = graph.call_function(operator.getitem, (node, k))
                    known[id(o)].meta["val"] = o
            else:
                known[id(out)] = node
            return out

    with torch.no_grad(), Mode():
        outs = fn(*inputs)
    outs = outs if isinstance(outs, (tuple, list)) else (outs,)
    graph.output(tuple(node_of(o) for o in outs))
    root = torch.nn.Module()
    for name, x in constants.items():
        root.register_buffer(name, x.detach())
    return fx.GraphModule(root, graph)


def small_model() -> tuple[torch.nn.Module, torch.Tensor]:
    nn = torch.nn
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 16, 32),
        nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 10), nn.LogSoftmax(-1),
    ).eval()  # fmt: skip
    return model, torch.randn(4, 1, 8, 8)


if __name__ == "__main__":
    model, x = small_model()
    graph = trace(model, x)
    compiled = compile_graph(graph)
    got, want = compiled(x)[0], model(x)
    print("largest difference to eager:", (got - want).abs().max().item())
    models = {"small model": graph, "with a sort": trace(lambda t: t.sort(-1)[0].cumsum(-1), torch.randn(3, 4))}
    print(lp.completeness(models, NUMPY))
