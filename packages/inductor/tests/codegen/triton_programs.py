"""Programs for the Triton target's tests, and the two ways to run them without a GPU.

    python triton_programs.py interpret     every program in Triton's interpreter against eager
    python triton_programs.py compile       every kernel to machine code for sm_80 and sm_90
    python triton_programs.py golden        the same, registers a thread kept as golden figures
    python triton_programs.py amd           every kernel to assembly of two AMD architectures

Prints one JSON object a program. A process of its own for each: Triton decides at import whether it interprets.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
if sys.argv[1:2] == ["interpret"]:
    os.environ["TRITON_INTERPRET"] = "1"

import torch
from programs import Tracer
from torch.fx import GraphModule

import lamina_primtorch

aten = torch.ops.aten


def _softmax(t: Tracer, x):
    return t.call(aten._softmax.default, x, -1, False)


def _log_softmax(t: Tracer, x):
    """The statistics alone: what cross entropy needs of a long row."""
    return t.call(aten.logsumexp.default, x, [-1])


def _layer_norm(t: Tracer, x, w, b):
    return t.call(aten.native_layer_norm.default, x, [x.shape[-1]], w, b, 1e-5)[0]


def _chain(t: Tracer, x, y):
    a = t.call(aten.mul.Tensor, t.call(aten.gelu.default, x), t.call(aten.tanh.default, y))
    return t.call(aten.mul.Tensor, t.call(aten.sigmoid.default, a), y)


def _transpose(t: Tracer, x, y):
    return t.call(aten.add.Tensor, t.call(aten.permute.default, x, [1, 0]), y)


def _index(t: Tracer, i, table):
    return t.call(aten.embedding.default, table, i)


def _scatter(t: Tracer, x, i, source):
    return t.call(aten.scatter_add.default, x, 1, i, source)


def _linear(t: Tracer, x, w, b, r):
    """A linear layer with activation, scale and residual behind it."""
    y = t.call(aten.addmm.default, b, x, t.call(aten.permute.default, w, [1, 0]))
    return t.call(aten.add.Tensor, t.call(aten.mul.Tensor, t.call(aten.gelu.default, y), 0.5), r)


def _cast_linear(t: Tracer, x, w, b):
    """A linear layer under autocast: parameters are rounded where they are read."""
    half = [t.call(aten._to_copy.default, v, dtype=torch.bfloat16) for v in (w, b)]
    return t.call(aten.relu.default, t.call(aten.addmm.default, half[1], x, t.call(aten.t.default, half[0])))


def _product(t: Tracer, x, w):
    return t.call(aten.relu.default, t.call(aten.mm.default, x, w))


def _gated(t: Tracer, x, gate, up):
    """Two products of one operand that meet behind: silu(x @ gate) * (x @ up)."""
    a, b = t.call(aten.mm.default, x, gate), t.call(aten.mm.default, x, up)
    return t.call(aten.mul.Tensor, t.call(aten.silu.default, a), b)


def _three(t: Tracer, x, *weights):
    """Products of one operand with several results."""
    return tuple(t.call(aten.mm.default, x, t.call(aten.t.default, w)) for w in weights)


def _batches(t: Tracer, x, y):
    return t.call(aten.sigmoid.default, t.call(aten.bmm.default, x, y))


def _left_gradient(t: Tracer, x, y):
    """Both matrices lie the other way round, and so does the result."""
    z = t.call(aten.mm.default, t.call(aten.permute.default, x, [1, 0]), t.call(aten.permute.default, y, [1, 0]))
    return t.call(aten.permute.default, z, [1, 0])


def _depthwise(stride, padding, dilation=1, swish=True):
    def program(t: Tracer, x, w, b):
        pairs = [[stride] * 2, [padding] * 2, [dilation] * 2]
        y = t.call(aten.convolution.default, x, w, b, *pairs, False, [0, 0], x.shape[1])
        return t.call(aten.hardswish.default, y) if swish else y

    return program


def _depthwise_backward(stride, padding, dilation=1):
    def program(t: Tracer, g, x, w):
        pairs = [[stride] * 2, [padding] * 2, [dilation] * 2]
        return t.call(aten.convolution_backward.default, g, x, w, [x.shape[1]], *pairs, False, [0, 0], x.shape[1],
                      [True, True, True])  # fmt: skip

    return program


def _attend(t: Tracer, scores, v, **softmax):
    return t.call(aten.bmm.default, t.call(aten._softmax.default, scores, -1, False), v)


def _products(t: Tracer, q, k, scale=0.25):
    return t.call(aten.mul.Tensor, t.call(aten.bmm.default, q, t.call(aten.permute.default, k, [0, 2, 1])), scale)


def _places(t: Tracer, m, n):
    rows = t.call(aten.view.default, t.call(aten.arange.default, m), [m, 1])
    return rows, t.call(aten.view.default, t.call(aten.arange.default, n), [1, n])


def _biased_attention(t: Tracer, q, k, v, bias):
    return _attend(t, t.call(aten.add.Tensor, _products(t, q, k), bias), v)


def _causal_attention(t: Tracer, q, k, v):
    """With a soft cap; heads behind batches, as models write it."""
    b, h, m, d = q.shape
    n = k.shape[2]
    q, k, v = (t.call(aten.view.default, x, [b * h, x.shape[2], x.shape[3]]) for x in (q, k, v))
    scores = t.call(aten.view.default, _products(t, q, k), [b, h, m, n])
    scores = t.call(aten.mul.Tensor, t.call(aten.tanh.default, t.call(aten.div.Tensor, scores, 3.0)), 3.0)
    rows, columns = _places(t, m, n)
    outside = t.call(aten.logical_not.default, t.call(aten.ge.Tensor, rows, columns))
    scores = t.call(aten.masked_fill.Scalar, scores, outside, float("-inf"))
    weights = t.call(aten.view.default, t.call(aten._softmax.default, scores, -1, False), [b * h, m, n])
    return t.call(aten.view.default, t.call(aten.bmm.default, weights, v), [b, h, m, v.shape[2]])


def _window_attention(t: Tracer, q, k, v, drop):
    """A window, weights with a factor behind them, and rows without any column."""
    rows, columns = _places(t, q.shape[1], k.shape[1])
    near = t.call(aten.lt.Scalar, t.call(aten.sub.Tensor, rows, columns), 24)
    inside = t.call(aten.logical_and.default, near, t.call(aten.gt.Tensor, rows, columns))
    nothing = t.call(aten.scalar_tensor.default, float("-inf"), dtype=q.dtype)
    scores = t.call(aten.where.self, inside, _products(t, q, k), nothing)
    weights = t.call(aten.mul.Tensor, t.call(aten._safe_softmax.default, scores, -1), drop)
    return t.call(aten.bmm.default, weights, v)


def _indexed_attention(t: Tracer, q, k, v, slopes, documents):
    """Scores with values looked up by position: a slope a head, pieces that only see themselves."""
    rows, columns = _places(t, q.shape[1], k.shape[1])
    heads = t.call(aten.view.default, t.call(aten.arange.default, q.shape[0]), [q.shape[0], 1, 1])
    slope = t.call(aten.index.Tensor, slopes, [heads])
    distance = t.call(aten.mul.Tensor, slope, t.call(aten.sub.Tensor, columns, rows))
    ours, theirs = (t.call(aten.index.Tensor, documents, [i]) for i in (rows, columns))
    scores = t.call(aten.add.Tensor, _products(t, q, k), distance)
    other = t.call(aten.ne.Tensor, ours, theirs)
    return _attend(t, t.call(aten.masked_fill.Scalar, scores, other, float("-inf")), v)


def _attention_gradients(mask=None, cap=0.0, safe=False, turned=False):
    """Gradients of query, key and value, the scores computed again; `turned`: that of the key as autograd has it."""

    def program(t: Tracer, q, k, v, grad, *documents):
        half = q.dtype != torch.float32
        scores = _products(t, q, k)
        if half:
            scores = t.call(aten._to_copy.default, scores, dtype=torch.float32)
        bent = scores
        if cap:
            bent = t.call(aten.tanh.default, t.call(aten.div.Tensor, scores, cap))
            scores = t.call(aten.mul.Tensor, bent, cap)
        inside = mask(t, q.shape[1], k.shape[1], *documents) if mask else None
        if inside is not None:
            nothing = t.call(aten.scalar_tensor.default, float("-inf"))
            scores = t.call(aten.where.self, inside, scores, nothing)
        softmax = (aten._safe_softmax.default,) if safe else (aten._softmax.default,)
        weights = t.call(*softmax, scores, -1, *([] if safe else [False]))
        narrow = t.call(aten._to_copy.default, weights, dtype=q.dtype) if half else weights
        gv = t.call(aten.bmm.default, t.call(aten.permute.default, narrow, [0, 2, 1]), grad)
        early = t.call(aten.mul.Tensor, gv, 2.0)  # wanted before the last of the gradients
        gw = t.call(aten.bmm.default, grad, t.call(aten.permute.default, v, [0, 2, 1]))
        gw = t.call(aten._to_copy.default, gw, dtype=torch.float32) if half else gw
        gs = t.call(aten._softmax_backward_data.default, gw, weights, -1, torch.float32)
        if inside is not None:
            gs = t.call(aten.where.self, inside, gs, t.call(aten.scalar_tensor.default, 0.0))
        if cap:
            slope = t.call(aten.rsub.Scalar, t.call(aten.mul.Tensor, bent, bent), 1.0)
            gs = t.call(aten.mul.Tensor, gs, slope)
        gs = t.call(aten.mul.Tensor, gs, q.shape[-1] ** -0.5)
        gs = t.call(aten._to_copy.default, gs, dtype=q.dtype) if half else gs
        gq = t.call(aten.bmm.default, gs, k)
        if turned:
            gk = t.call(aten.bmm.default, t.call(aten.permute.default, q, [0, 2, 1]), gs)
            gk = t.call(aten.permute.default, gk, [0, 2, 1])
        else:
            gk = t.call(aten.bmm.default, t.call(aten.permute.default, gs, [0, 2, 1]), q)
        return gq, gk, early

    return program


def _causal(t: Tracer, m, n):
    return t.call(aten.ge.Tensor, *_places(t, m, n))


def _near(t: Tracer, m, n):
    """A window of 70 behind each row but the row itself: the first row has no column."""
    rows, columns = _places(t, m, n)
    near = t.call(aten.lt.Scalar, t.call(aten.sub.Tensor, rows, columns), 70)
    return t.call(aten.logical_and.default, near, t.call(aten.gt.Tensor, rows, columns))


def _same_document(t: Tracer, m, n, documents):
    ours, theirs = (t.call(aten.index.Tensor, documents, [i]) for i in _places(t, m, n))
    return t.call(aten.logical_and.default, t.call(aten.eq.Tensor, ours, theirs), _causal(t, m, n))


def _grouped(t: Tracer, x, w, ends, scale):
    """Groups of rows, one of them empty; an activation behind the product, which is wanted as well."""
    y = t.call(aten._grouped_mm.default, x, w, ends)
    return t.call(aten.mul.Tensor, t.call(aten.silu.default, y), scale), y


def _ends(*values):
    return lambda: torch.tensor(values, dtype=torch.int32)


def _image(*shape, dtype=torch.float32):
    return lambda: torch.randn(*shape).to(dtype).contiguous(memory_format=torch.channels_last)


def _one(op):
    return lambda t, *inputs: t.call(op[0], *inputs, *op[1:])


def _float8(t: Tracer, x, y):
    """Casts to both formats, overflow and tiny values included, and back."""
    made = [t.call(aten._to_copy.default, x, dtype=d) for d in (torch.float8_e4m3fn, torch.float8_e5m2)]
    given = t.call(aten._to_copy.default, y, dtype=torch.bfloat16)
    back = [t.call(aten._to_copy.default, m, dtype=torch.float32) for m in made]
    return *made, t.call(aten.mul.Tensor, given, 3.0), t.call(aten.add.Tensor, *back)


def _spread(*shape):
    """From far below the smallest float8 to beyond the largest, infinities and NaN."""

    def make():
        x = torch.randn(*shape) * torch.exp2(torch.randint(-20, 18, shape).float())
        x.view(-1)[:8] = torch.tensor([448.0, 464.0, 465.0, 1e9, float("inf"), -float("inf"), float("nan"), -0.0])
        return x

    return make


def _normal(*shape, dtype=torch.float32):
    return lambda: torch.randn(*shape).to(dtype)


def _small(*shape):
    return lambda: (torch.randn(*shape) / 8).to(torch.bfloat16)


def _whole(low, high, *shape, dtype=torch.int64):
    return lambda: torch.randint(low, high, shape).to(dtype)


# name -> (form of its kernel, makers of inputs, program)
PROGRAMS = {
    "pointwise": ("pointwise", [_normal(33, 100), _normal(33, 100)], _chain),
    "transpose": ("tiled", [_normal(64, 70), _normal(70, 64)], _transpose),
    "softmax": ("persistent", [_normal(33, 100)], _softmax),
    "long_softmax": ("looped", [_normal(3, 20000)], _softmax),
    "half_softmax": ("persistent", [_normal(5, 300, dtype=torch.bfloat16)], _softmax),
    "layer_norm": ("persistent", [_normal(33, 100), _normal(100), _normal(100)], _layer_norm),
    "full_sum": ("split", [_normal(300000)], _one((aten.sum.default,))),
    "column_sum": ("split", [_normal(5000, 70)], _one((aten.sum.dim_IntList, [0]))),
    "full_argmax": ("split", [_normal(200000)], _one((aten.argmax.default,))),
    "argmin": ("persistent", [_normal(33, 100)], _one((aten.argmin.default, 1))),
    "any": ("persistent", [_whole(0, 2, 9, 31, dtype=torch.bool)], _one((aten.any.dim, 1))),
    "prod": ("persistent", [_normal(9, 31)], _one((aten.prod.dim_int, 1))),
    "cumsum": ("persistent", [_normal(33, 100)], _one((aten.cumsum.default, 1))),
    "long_cumsum": ("looped", [_normal(3, 10000)], _one((aten.cumsum.default, 1))),
    "variance": ("persistent", [_normal(33, 100)], _one((aten.var.correction, [1]))),
    "column_variance": ("split", [_normal(1030, 70)], _one((aten.var.correction, [0]))),
    "split_variance": ("split", [_normal(3, 30001)], _one((aten.var.correction, [1]))),
    "log_softmax": ("looped", [_normal(3, 70003)], _log_softmax),
    "floor_division": ("pointwise", [_whole(-50, 50, 99), _whole(1, 9, 99)], _one((aten.floor_divide.default,))),
    "wraps": ("pointwise", [_whole(-100, 100, 77, dtype=torch.int8), _whole(-100, 100, 77, dtype=torch.int8)],
              _one((aten.mul.Tensor,))),
    "double": ("pointwise", [_normal(50, dtype=torch.float64)], _one((aten.exp.default,))),
    "embedding": ("pointwise", [_whole(0, 50, 20), _normal(50, 100)], _index),
    "scatter_add": ("pointwise", [_normal(9, 31), _whole(0, 31, 9, 5), _normal(9, 5)], _scatter),
    "linear": ("dot", [_normal(20, 48), _normal(40, 48), _normal(40), _normal(20, 40)], _linear),
    "half_linear": ("dot", [_normal(*s, dtype=torch.bfloat16) for s in ((8, 64), (100, 64), (100,), (8, 100))],
                    _linear),
    "long_product": ("dot", [_normal(20, 1000), _normal(40, 1000), _normal(40), _normal(20, 40)], _linear),
    "long_batches": ("dot", [_normal(2, 16, 512, dtype=torch.bfloat16), _normal(2, 512, 32, dtype=torch.bfloat16)],
                     _batches),
    "gated": ("dot", [_normal(12, 40), _normal(40, 50), _normal(40, 50)], _gated),
    "half_gated": ("dot", [_small(16, 600), _small(600, 32), _small(600, 32)], _gated),
    "three_products": ("dot", [_normal(12, 40), *[_normal(24, 40)] * 3], _three),
    "cast_linear": ("dot", [_normal(20, 48, dtype=torch.bfloat16), _normal(40, 48), _normal(40)], _cast_linear),
    "half_product": ("dot", [_normal(33, 70, dtype=torch.bfloat16), _normal(70, 37, dtype=torch.bfloat16)], _product),
    "batches": ("dot", [_normal(3, 17, 30), _normal(3, 30, 9)], _batches),
    "turned_product": ("dot", [_normal(30, 17), _normal(21, 30)], _left_gradient),
    "depthwise": ("pointwise", [_image(2, 8, 9, 7), _normal(8, 1, 3, 3), _normal(8)], _depthwise(1, 1)),
    "depthwise_strided": ("pointwise", [_image(2, 8, 9, 8, dtype=torch.bfloat16),
                                        _normal(8, 1, 5, 5, dtype=torch.bfloat16), _normal(8, dtype=torch.bfloat16)],
                          _depthwise(2, 2)),
    "depthwise_dilated": ("pointwise", [_image(2, 8, 9, 8), _normal(8, 1, 3, 3), _normal(8)],
                          _depthwise(1, 0, 2, False)),
    "depthwise_gradients": ("looped", [_image(2, 8, 9, 7), _image(2, 8, 9, 7), _normal(8, 1, 3, 3)],
                            _depthwise_backward(1, 1)),
    "strided_gradients": ("pointwise", [_image(2, 8, 5, 4), _image(2, 8, 9, 8), _normal(8, 1, 5, 5)],
                          _depthwise_backward(2, 2)),
    "float8": ("pointwise", [_spread(40, 33), _normal(40, 33, dtype=torch.float8_e4m3fn)], _float8),
    "attention": ("attention", [_normal(3, 40, 20), _normal(3, 50, 20), _normal(3, 50, 24), _normal(40, 50)],
                  _biased_attention),
    "half_attention": ("attention", [*[_normal(2, 70, 64, dtype=torch.bfloat16)] * 3,
                                     _normal(2, 1, 70, dtype=torch.bfloat16)], _biased_attention),
    "causal_attention": ("attention", [_normal(2, 3, 80, 32), _normal(2, 3, 80, 32), _normal(2, 3, 80, 32)],
                         _causal_attention),
    "window_attention": ("attention", [*[_normal(2, 100, 16)] * 3, _normal(2, 100, 100)], _window_attention),
    "long_attention": ("attention", [*[_normal(1, 1, 600, 16)] * 3], _causal_attention),
    "long_window": ("attention", [*[_normal(1, 544, 32)] * 3, _normal(1, 1, 544)], _window_attention),
    "half_heads": ("attention", [*[_normal(1, 2, 130, 128, dtype=torch.float16)] * 3], _causal_attention),
    "indexed_attention": ("attention", [*[_normal(2, 64, 32)] * 3, _normal(2), _whole(0, 3, 64)], _indexed_attention),
    "gradients": ("attention gradient",
                  [_normal(3, 40, 20), _normal(3, 50, 20), _normal(3, 50, 24), _normal(3, 40, 24)],
                  _attention_gradients()),
    "causal_gradients": ("attention gradient", [*[_normal(2, 80, 32)] * 4],
                         _attention_gradients(_causal, cap=3.0, turned=True)),
    "long_gradients": ("attention gradient", [*[_normal(1, 600, 32, dtype=torch.float16)] * 4],
                       _attention_gradients(_causal, turned=True)),
    "half_gradients": ("attention gradient", [*[_normal(1, 640, 64, dtype=torch.bfloat16)] * 4],
                       _attention_gradients(_causal, safe=True)),
    "window_gradients": ("attention gradient", [*[_normal(1, 544, 32, dtype=torch.float16)] * 4],
                         _attention_gradients(_near, safe=True)),
    "wide_gradients": ("attention gradient", [*[_normal(2, 70, 128, dtype=torch.float16)] * 4],
                       _attention_gradients(_causal)),
    "document_gradients": ("attention gradient", [*[_normal(2, 96, 64, dtype=torch.bfloat16)] * 4, _whole(0, 3, 96)],
                           _attention_gradients(_same_document, safe=True, cap=5.0)),
    "grouped": ("grouped", [_normal(70, 40), _normal(5, 40, 48), _ends(10, 10, 33, 34, 70), _normal(70, 1)], _grouped),
    "half_grouped": ("grouped", [_small(100, 64), _small(3, 64, 72), _ends(7, 90, 100), _small(100, 72)], _grouped),
    "odd_gradients": ("pointwise", [_image(2, 8, 3, 2), _image(2, 8, 9, 9), _normal(8, 1, 2, 3)],
                      _depthwise_backward(3, 0, 2)),
}  # fmt: skip


def graph_of(name: str) -> tuple[GraphModule, list, list]:
    """(prim graph, inputs, expected outputs)."""
    torch.manual_seed(0)
    _, makers, program = PROGRAMS[name]
    inputs = [make() for make in makers]
    tracer = Tracer(*inputs)
    out = program(tracer, *inputs)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    gm = lamina_primtorch.decompose(tracer.finish(*outs), "prims")
    return gm, inputs, outs


def interpret(name: str) -> dict:
    from lamina_inductor import compile_graph

    gm, inputs, expected = graph_of(name)
    compiled = compile_graph(gm, inputs, target="triton")
    got = compiled(list(inputs))
    problem = compiled.fallback or "; ".join(map(str, compiled.reasons or [e.target for e in compiled.externs]))
    try:
        for a, b in zip(got, expected, strict=True):
            if b.dtype.itemsize == 1 and b.dtype.is_floating_point:  # all bits but those of NaN
                assert a.dtype == b.dtype and torch.equal(a.float().isnan(), b.float().isnan())
                numbers = ~b.float().isnan()
                a, b = a.view(torch.uint8).masked_fill(~numbers, 0), b.view(torch.uint8).masked_fill(~numbers, 0)
            half = b.dtype in (torch.bfloat16, torch.float16)  # eager rounds in between
            torch.testing.assert_close(
                a, b, rtol=2e-2 if half else 1e-4, atol=1e-1 if half else 1e-4, equal_nan=True
            )
            assert a.stride() == b.stride()
    except AssertionError as e:
        problem = str(e)
    return {"name": name, "problem": problem, "source": compiled.source}


def resources(cubin: bytes) -> dict[str, int]:
    """Registers a thread and bytes of spilled ones, as the disassembler that comes with Triton reports them."""
    import triton.backends.nvidia

    tool = pathlib.Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
        f.write(cubin)
        f.flush()
        text = subprocess.run([str(tool), "-res-usage", f.name], capture_output=True, text=True, check=True).stdout
    registers, stack, local = (int(re.findall(rf"{name}:(\d+)", text)[0]) for name in ("REG", "STACK", "LOCAL"))
    return {"registers": registers, "spills": stack + local}


class CompileOnly:
    """A target that stops once every kernel of the program is machine code."""

    name = "compile only"

    def __init__(self, *architectures: int | str) -> None:
        self.architectures = architectures
        self.found: list[dict] = []

    def unavailable(self) -> None:
        return None

    def can_lower(self, op, dtype):
        from lamina_inductor.codegen.triton import TritonTarget

        return TritonTarget().can_lower(op, dtype)

    def build(self, program, config):
        from lamina_inductor.codegen.triton_ahead import compile_ahead, describe
        from lamina_inductor.codegen.triton_kernel import generate
        from lamina_inductor.codegen.triton_module import launch_config, load_module, module_text, request_for

        folder = pathlib.Path(tempfile.mkdtemp())
        for spec in program.kernels:
            kernel = generate(spec)
            module = load_module(module_text([kernel]), folder)
            for position, launch in enumerate(kernel.launches):
                config_ = launch_config(kernel, position, kernel.configs[0])
                pointers = {p.name for p in launch.params if p.kind != "size"}
                for arch in self.architectures:
                    done = compile_ahead(module, request_for(launch, config_, arch, pointers))
                    if isinstance(arch, str):
                        self.found.append({"form": kernel.form, "arch": arch, "ends": "s_endpgm" in done.asm["amdgcn"]})
                        continue
                    facts = describe(done)
                    ptx = done.asm["ptx"]
                    vector = "ld.global.v" in ptx or "ld.global.b128" in ptx
                    size = len(done.asm["cubin"])
                    row = {"form": kernel.form, "arch": arch, "cubin": size, "vector": vector}
                    row.update(resources(done.asm["cubin"]))
                    self.found.append({**row, "shared": facts["shared"], "warps": facts["warps"]})

        class Done:
            source = ""

            def __call__(self, *inputs):
                raise RuntimeError("machine code for another device")

        return Done()


def compile_all(name: str, *architectures: int | str) -> dict:
    from lamina_inductor import compile_graph

    gm, inputs, _ = graph_of(name)
    target = CompileOnly(*(architectures or (80, 90)))
    compile_graph(gm, inputs, target=target)
    return {"name": name, "kernels": target.found}


GOLDEN = pathlib.Path(__file__).with_name("triton_registers.json")


def registers_of(compiled: Iterable[dict]) -> dict[str, dict[str, list[int]]]:
    """Program -> architecture -> registers a thread of its kernels, from the answers of `compile_all`."""
    return {
        row["name"]: {str(a): [k["registers"] for k in row["kernels"] if k["arch"] == a] for a in (80, 90)}
        for row in compiled
    }


def write_golden(answers: Iterable[dict]) -> None:
    """Keep the registers of all programs as the golden figures."""
    import triton

    rows = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(registers_of(answers).items())]
    head = f'{{\n "triton": "{triton.__version__}",\n "registers": {{\n'
    GOLDEN.write_text(head + ",\n".join(rows) + "\n }\n}\n")


if __name__ == "__main__":
    os.environ["LAMINA_STRICT"] = "1"
    work = {
        "interpret": interpret,
        "compile": compile_all,
        "amd": lambda name: compile_all(name, "gfx942", "gfx1100"),
        "golden": None,
    }[sys.argv[1]]
    if sys.argv[1] == "golden":
        write_golden(map(compile_all, PROGRAMS))
        sys.exit()
    for program_name in sys.argv[2:] or PROGRAMS:
        print(json.dumps(work(program_name)), flush=True)
