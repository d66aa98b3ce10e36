"""Every prim: its samples run, its meta function says what eager computes, and its spec is complete."""

import pickle

import pytest
import torch

import lamina_primtorch as lp
from lamina_primtorch.spec import TAGS, define
from lamina_primtorch.value import Value


def as_value(x):
    if isinstance(x, torch.Tensor):
        return Value(tuple(x.shape), tuple(x.stride()), x.dtype, x.device)
    return x


@pytest.mark.parametrize("prim", lp.PRIMS.values(), ids=lambda p: p.name)
def test_meta_is_eagers_metadata(prim):
    for args, kwargs in prim.spec.samples:
        out = prim(*args, **kwargs)
        if "data_dependent" in prim.spec.tags:
            continue
        meta = prim.meta(*torch.utils._pytree.tree_map(as_value, args), **kwargs)
        outs = out if isinstance(out, (tuple, list)) else (out,)
        metas = (meta,) if isinstance(meta, lp.TensorMeta) else meta
        assert len(outs) == len(metas)
        for o, m in zip(outs, metas, strict=True):
            if o is not None:
                assert (tuple(o.shape), o.stride(), o.dtype, o.device) == tuple(m)


def test_the_set_is_small_and_complete():
    assert 150 <= len(lp.PRIMS) <= 250
    for name, prim in lp.PRIMS.items():
        spec = prim.spec
        assert spec.name == name and spec.doc and spec.tags and spec.tags <= set(TAGS)
        assert "extern" in spec.tags or spec.samples, f"{name} has no samples"
        assert ("extern" in spec.tags) == (spec.aten is not None)
        assert getattr(lp.prims, name) is prim


def test_a_second_definition_raises():
    with pytest.raises(ValueError, match="twice"):
        define("add", "()", None, None, ["elementwise"], "again")


def test_prims_pickle_by_name_and_survive_a_graph_module():
    assert pickle.loads(pickle.dumps(lp.prims.add)) is lp.prims.add
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(lp.prims.mul, (x, 3.0)),))
    gm = pickle.loads(pickle.dumps(torch.fx.GraphModule({}, graph)))
    assert torch.equal(gm(torch.ones(2))[0], torch.full((2,), 3.0))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_shifts_beyond_the_width(dtype):
    width = dtype.itemsize * 8
    a = torch.tensor([100, 1, 3], dtype=dtype)
    n = torch.tensor([width, width + 1, width], dtype=dtype)
    assert lp.prims.shift_left(a, n).tolist() == [0, 0, 0]
    if dtype is not torch.uint8:
        assert lp.prims.shift_right(-a, n).tolist() == [-1, -1, -1]


def test_division_rounds_exactly():
    a = torch.arange(-12, 13, dtype=torch.float64) / 10
    for b in (0.1, 0.2, 0.3, -0.1):
        got = lp.prims.div_floor(a, b)
        assert got.tolist() == [x // b for x in a.tolist()]
