"""The channels-last plan: results, strides and borders are eager's, whatever lies in between."""

import pytest
import torch
from check import TARGETS, compare, run
from programs import Tracer

import lamina_primtorch
from lamina_inductor import layout_pass
from lamina_inductor.compile import compile_graph
from lamina_inductor.layout_pass import EXTERNS, channels_last_strides, choose_layouts

targets = pytest.mark.parametrize("target", TARGETS)
LAST = torch.channels_last


class Saved:
    """Stands for the description of an output that only a backward graph reads."""

    kind = "saved_tensor"


class Given:
    kind = "user_output"


def conv(t, x, w, bias=None, stride=1, padding=0, dilation=1, groups=1, transposed=False):
    return t.convolution(
        x, w, bias, [stride] * 2, [padding] * 2 if isinstance(padding, int) else padding, [dilation] * 2, transposed,
        [0, 0], groups,
    )  # fmt: skip


def relu(t, x):
    zero = t.full(tuple(x.shape), 0.0, x.dtype, torch.device("cpu"))
    return t.maximum(x, zero)


def planned(gm):
    plan = choose_layouts(gm.graph)
    return set() if plan is None else {n.target.name for n in plan.externs}


@targets
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(2, 8, 9, 7), (1, 5, 6, 6), (3, 16, 1, 1)])
def test_chain(size, dtype, target):
    x, b = torch.randn(size, dtype=dtype), torch.randn(12, dtype=dtype)
    v, w = torch.randn(12, size[1], 3, 3, dtype=dtype), torch.randn(6, 12, 1, 1, dtype=dtype)
    t = Tracer(x, v, w, b)
    y = relu(t, conv(t, x, v, b, padding=1))
    gm = t.finish(y, conv(t, y, w))
    assert planned(gm) == {"convolution"}
    near = 2e-2 if dtype == torch.bfloat16 else 1e-4
    run(gm, [x, v, w, b], target, rtol=near, atol=near)


@targets
@pytest.mark.parametrize(
    "options",
    [
        dict(groups=8), dict(groups=2), dict(stride=2, padding=1), dict(dilation=2, padding=2), dict(padding=[2, 0]),
        dict(groups=8, dilation=2), dict(groups=8, stride=2, padding=[1, 3]),
    ],
)  # fmt: skip
def test_kinds_of_convolution(options, target):
    groups = options.get("groups", 1)
    x, v, w = torch.randn(2, 8, 11, 10), torch.randn(8, 8 // groups, 3, 3), torch.randn(4, 8, 1, 1)
    t = Tracer(x, v, w)
    first = conv(t, x, v, **options)
    gm = t.finish(conv(t, relu(t, first), w), t.sum(first, (0, 2, 3), torch.float32))
    assert planned(gm) == {"convolution"}
    run(gm, [x, v, w], target, rtol=1e-4, atol=1e-4)


@targets
def test_transposed(target):
    x, v, w = torch.randn(2, 6, 5, 7), torch.randn(6, 4, 3, 3), torch.randn(3, 4, 1, 1)
    t = Tracer(x, v, w)
    gm = t.finish(conv(t, relu(t, conv(t, x, v, stride=2, padding=1, transposed=True)), w))
    assert planned(gm) == {"convolution"}
    run(gm, [x, v, w], target, rtol=1e-4, atol=1e-4)


@targets
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pools_follow(ceil_mode, target):
    x, v = torch.randn(2, 4, 12, 13), torch.randn(6, 4, 3, 3)
    x[0, 0, 2, 2] = float("nan")
    t = Tracer(x, v)
    y = relu(t, conv(t, x, v, padding=1))
    best, where = t.max_pool2d(y, [3, 3], [2, 2], [1, 1], [1, 1], ceil_mode)
    mean = t.avg_pool2d(y, [3, 2], [2, 2], [1, 1], ceil_mode, False)
    gm = t.finish(best, where, mean, t.adaptive_avg_pool2d(best, [3, 2]))
    assert planned(gm) == {"convolution", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"}
    run(gm, [x, v], target, rtol=1e-4, atol=1e-4)


@targets
def test_backward(target):
    x, v, g = torch.randn(2, 6, 9, 9), torch.randn(8, 6, 3, 3), torch.randn(2, 8, 9, 9)
    t = Tracer(x, v, g)
    y = relu(t, conv(t, x, v, padding=1))
    best, where = t.max_pool2d(y, [2, 2], [2, 2])
    back = t.max_pool2d_backward(best, y, [2, 2], [2, 2], [0, 0], [1, 1], False, where)
    grads = t.convolution_backward(
        t.mul(g, back), x, v, [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
    )
    gm = t.finish(best, *grads)
    assert planned(gm) == {"convolution", "max_pool2d", "max_pool2d_backward", "convolution_backward"}
    run(gm, [x, v, g], target, rtol=1e-4, atol=1e-4)


@targets
def test_some_gradients_are_not_wanted(target):
    x, v, g = torch.randn(2, 6, 9, 9), torch.randn(6, 6, 3, 3), torch.randn(2, 6, 9, 9)
    t = Tracer(x, v, g)
    one = [1, 1]
    first = t.convolution_backward(g, x, v, None, one, one, one, False, [0, 0], 1, [True, False, False])[0]
    second = t.convolution_backward(first, x, v, None, one, one, one, False, [0, 0], 1, [False, True, False])[1]
    run(t.finish(second), [x, v, g], target, rtol=1e-4, atol=1e-3)


@targets
def test_joins_pads_and_slices(target):
    x, v, w = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3), torch.randn(4, 10, 1, 1)
    t = Tracer(x, v, w)
    y = conv(t, x, v, padding=1)
    joined = t.cat((y, relu(t, x)), 1)
    padded = t.pad(joined, 0.5, (0, 0, 1, 2), (0, 0, 0, 1))
    z = conv(t, padded, w)
    gm = t.finish(z, t.slice(z, (0, 1, 0, 0), (2, 3, 8, 8), (1, 1, 2, 1)), joined)
    run(gm, [x, v, w], target, rtol=1e-4, atol=1e-4)


@targets
def test_views_between(target):
    """A norm over the channels works on a permuted view, as ConvNeXt has it."""
    x, v, w = torch.randn(2, 4, 8, 6), torch.randn(8, 4, 3, 3), torch.randn(6, 8, 1, 1)
    t = Tracer(x, v, w)
    y = t.permute(conv(t, x, v, padding=1), (0, 2, 3, 1))
    var, mean = t.var_mean(y, (3,), 0.0)
    shape = tuple(y.shape)
    centred = t.sub(y, t.broadcast_in_dim(mean, shape, (0, 1, 2)))
    scaled = t.mul(centred, t.broadcast_in_dim(t.rsqrt(t.add(var, 1e-5)), shape, (0, 1, 2)))
    back = t.permute(scaled, (0, 3, 1, 2))
    gm = t.finish(conv(t, back, w), t.reshape(back, (2, 8 * 8 * 6)))
    run(gm, [x, v, w], target, rtol=1e-4, atol=1e-4)


def test_what_gains_nothing_keeps_its_layout():
    def single(x, w):
        t = Tracer(x, w)
        return t.finish(conv(t, x, w))

    assert planned(single(torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3))) == set()  # two borders for one call
    for x, w in (
        (torch.randn(2, 1, 9, 9), torch.randn(8, 1, 3, 3)),  # strides cannot tell one channel's layout
        (torch.randn(2, 8, 9, 9, dtype=torch.float64), torch.randn(8, 8, 3, 3, dtype=torch.float64)),
        (torch.randn(1, 64, 3, 3), torch.randn(64, 64, 3, 3)),  # mostly weights
        (torch.randn(2, 8, 9), torch.randn(8, 8, 3)),
    ):
        t = Tracer(x, w)
        if x.dim() == 3:
            y = t.convolution(x, w, None, [1], [1], [1], False, [0], 1)
            gm = t.finish(t.convolution(y, w, None, [1], [1], [1], False, [0], 1))
        else:
            y = conv(t, x, w, padding=1)
            gm = t.finish(t.mul(y, 2.0))
        assert planned(gm) == set()


def test_saved_tensors_need_no_turning():
    """What only the backward graph reads leaves in the layout it has, and arrives with it."""
    x, v, w = torch.randn(2, 4, 8, 6), torch.randn(8, 4, 3, 3), torch.randn(6, 8, 1, 1)
    t = Tracer(x, v, w)
    y = relu(t, conv(t, x, v, padding=1))
    z = conv(t, y, w)
    gm = t.finish(z, y)
    gm.graph.output_node().meta["desc"] = [Given(), Saved()]
    compiled = compile_graph(gm, target="reference")
    assert compiled.output_strides == [None, channels_last_strides(y.shape)]
    out, saved = compiled([x, v, w])
    compare(out, z, atol=1e-4, rtol=1e-4)
    compare(saved, y, atol=1e-4, rtol=1e-4, stride=False)
    assert saved.is_contiguous(memory_format=LAST)

    g = torch.randn(2, 6, 8, 6)
    t = Tracer(y, w, g)
    grads = t.convolution_backward(g, y, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
    gm = t.finish(grads[0], grads[1], y)
    next(iter(gm.graph.nodes)).meta["physical_stride"] = compiled.output_strides[1]
    back = compile_graph(gm, target="reference")
    for got, want in zip(back([saved, w, g]), (grads[0], grads[1], y), strict=True):
        compare(got, want, atol=1e-4, rtol=1e-4)


def test_other_externs_get_eagers_layout():
    x, v, w = torch.randn(2, 4, 8, 6), torch.randn(8, 4, 3, 3), torch.randn(6, 8, 1, 1)
    t = Tracer(x, v, w)
    y = conv(t, relu(t, conv(t, x, v, padding=1)), w)
    first = t.as_strided(y, (2, 6 * 48), (6 * 48, 1), 0)
    ordered = t.sort(y, stable=False, dim=1, descending=False)
    run(t.finish(first, ordered[0]), [x, v, w], "reference", atol=1e-4, rtol=1e-4)


def test_rows_name_prims():
    from lamina_primtorch import PRIMS

    assert set(EXTERNS) <= set(PRIMS)


@pytest.mark.parametrize("dtype, groups, wanted", [
    (torch.bfloat16, 1, True), (torch.bfloat16, 8, True), (torch.float32, 1, True), (torch.float32, 8, False),
    (torch.float64, 1, False),
])  # fmt: skip
def test_convolutions_on_cuda_take_weights_in_rows_of_channels_too(dtype, groups, wanted):
    from lamina_primtorch.prims import PRIMS
    from lamina_primtorch.value import Value

    device = torch.device("cuda", 0)
    graph = torch.fx.Graph()

    def value(*shape):
        return Value(shape, torch.empty(shape, device="meta").stride(), dtype, device)

    x, w = graph.placeholder("x"), graph.placeholder("w")
    x.meta["val"], w.meta["val"] = value(8, 16, 20, 20), value(16, 16 // groups, 3, 3)
    y = x
    for _ in range(3):
        y = graph.call_function(PRIMS["convolution"], (y, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups))
        y.meta["val"] = value(8, 16, 20, 20)
    graph.output((y,))
    plan = choose_layouts(graph)
    assert (plan is not None) == wanted
    assert plan is None or set(plan.externs.values()) == {(0, 1)}


@targets
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "size,kernel,stride,padding,dilation",
    [
        ((2, 40, 9, 11), (7, 7), 1, (3, 3), 1), ((1, 5, 12, 7), (3, 3), 2, (1, 1), 1),
        ((3, 16, 8, 8), (5, 3), 2, (2, 0), 1), ((2, 33, 10, 9), (3, 3), 1, (2, 2), 2),
        ((2, 4, 3, 3), (3, 3), 1, (1, 1), 1), ((2, 20, 6, 5), (1, 5), 1, (0, 4), 1),
        ((1, 8, 5, 9), (3, 3), 3, (0, 2), 2),
    ],
)  # fmt: skip
def test_depthwise_weight_gradient(size, kernel, stride, padding, dilation, dtype, target, monkeypatch):
    monkeypatch.setattr(layout_pass, "_LEAST_GAIN", 0.0)
    x, w = torch.randn(size, dtype=dtype), torch.randn(size[1], 1, *kernel, dtype=dtype)
    options = ([stride] * 2, list(padding), [dilation] * 2, False, [0, 0], size[1])
    g = torch.randn_like(torch.ops.aten.convolution(x, w, None, *options))
    for mask in ([True, True, True], [False, True, False], [True, True, False]):
        t = Tracer(x, w, g)
        grads = t.convolution_backward(t.mul(g, 0.5), t.mul(x, 0.5), w, [size[1]], *options, mask)
        again = t.convolution_backward(t.mul(g, 0.5), t.mul(x, 2.0), w, [size[1]], *options, mask)
        gm = t.finish(*[v for v in (*grads, *again) if v is not None])
        near = dict(rtol=2e-2, atol=0.1) if dtype == torch.bfloat16 else dict(rtol=1e-4, atol=1e-4)
        compiled = run(gm, [x, w, g], target, **near)
        assert sum(k.name.startswith("depthwise_weight_grad") for k in compiled.kernels) == 2


@pytest.mark.parametrize(
    "dtype, groups, window, wanted",
    [
        (torch.float32, 1, 3, True),
        (torch.float32, 16, 3, True),  # a kernel of ours
        (torch.float32, 16, 7, False),  # too many taps for it
        (torch.float32, 4, 3, False),
        (torch.bfloat16, 16, 7, True),
    ],
)
def test_which_convolutions_a_gpu_runs_channels_last(dtype, groups, window, wanted):
    x = torch.empty(2, 16, 8, 8, dtype=dtype, device="meta")
    weight = torch.empty(16, 16 // groups, window, window, dtype=dtype, device="meta")
    assert layout_pass.cuda_prefers(x, weight, groups) is wanted


@pytest.mark.parametrize("channels, stride, wanted", [(8, 2, False), (16, 2, True), (8, 1, True)])
def test_few_channels_into_a_strided_single_tap_stay_on_a_cpu(channels, stride, wanted):
    x = torch.randn(2, channels, 16, 16).contiguous(memory_format=LAST)
    w = torch.randn(8, channels, 1, 1)
    t = Tracer(x, w)
    y = t.call(torch.ops.aten.convolution.default, x, w, None, [stride] * 2, [0, 0], [1, 1], False, [0, 0], 1)
    gm = lamina_primtorch.decompose(t.finish(y), "prims")
    assert (choose_layouts(gm.graph) is not None) is wanted
