"""Products of row groups as kernels of ours: what is computed with them, and which calls stay."""

import pytest
import torch
from check import compare
from programs import Tracer

import lamina_primtorch
from lamina_inductor import compile_graph
from lamina_inductor.codegen.grouped_kernel import GroupedKernel
from lamina_inductor.codegen.reference import ReferenceTarget
from lamina_inductor.codegen.triton_grouped import grouped_configs
from lamina_inductor.passes import without

aten = torch.ops.aten


class Planned(ReferenceTarget):
    """Takes templates, and only keeps the program."""

    name = "planned"

    def can_lower(self, op, dtype):
        return None if op == "attention" else super().can_lower(op, dtype)

    def build(self, program, config):
        class Done:
            source = ""

        return Done()


def operands(dtype=torch.float32):
    ends = torch.tensor([10, 10, 33, 64], dtype=torch.int32)
    return torch.randn(64, 16, dtype=dtype), torch.randn(4, 16, 24, dtype=dtype), ends


def graph_of(program, *inputs):
    tracer = Tracer(*inputs)
    out = program(tracer, *inputs)
    outs = out if isinstance(out, tuple) else (out,)
    return lamina_primtorch.decompose(tracer.finish(*outs), "prims"), outs


def planned(program, *inputs):
    gm, _ = graph_of(program, *inputs)
    compiled = compile_graph(gm, list(inputs), target=Planned())
    return [k for k in compiled.kernels if isinstance(k, GroupedKernel)], compiled


def product(t, x, w, ends):
    return t.call(aten._grouped_mm.default, x, w, ends)


def activated(t, x, w, ends):
    return t.call(aten.mul.Tensor, t.call(aten.silu.default, product(t, x, w, ends)), 2.0)


def kept(t, x, w, ends):
    y = product(t, x, w, ends)
    return t.call(aten.relu.default, y), y


def summed(t, x, w, ends):
    return t.call(aten.sum.dim_IntList, t.call(aten.relu.default, product(t, x, w, ends)), [1])


@pytest.mark.parametrize("program, results, others", [(product, 1, 0), (activated, 1, 0), (kept, 2, 0), (summed, 1, 1)])
def test_what_follows_is_part_of_the_kernel(program, results, others):
    found, compiled = planned(program, *operands())
    assert len(found) == 1 and not compiled.externs
    assert sum(b.role == "out" for b in found[0].arguments) == results
    assert len(compiled.kernels) == 1 + others


def test_two_products_with_a_gate():
    def program(t, x, w, ends, v):
        return t.call(aten.mul.Tensor, t.call(aten.silu.default, product(t, x, w, ends)), product(t, x, v, ends))

    x, w, ends = operands()
    found, compiled = planned(program, x, w, ends, torch.randn(4, 16, 24))
    assert len(found) == 2 and len(compiled.kernels) == 2


def test_columns_in_groups_stay_with_aten():
    """The gradient of a weight: the sums are in groups."""

    def program(t, x, y, ends):
        return t.call(aten._grouped_mm.default, t.call(aten.permute.default, x, [1, 0]), y, ends)

    x, _, ends = operands(torch.bfloat16)
    found, compiled = planned(program, x, torch.randn(64, 24, dtype=torch.bfloat16), ends)
    assert not found and len(compiled.externs) == 1


def test_the_pass_can_be_left_out():
    with without("products"):
        found, compiled = planned(activated, *operands())
    assert not found and len(compiled.externs) == 1


def test_targets_without_the_template_call_aten():
    x, w, ends = operands(torch.bfloat16)
    gm, outs = graph_of(activated, x, w, ends)
    compiled = compile_graph(gm, [x, w, ends], target="reference")
    compare(compiled([x, w, ends])[0], outs[0])


@pytest.mark.parametrize("rows, groups", [(64, 4), (8192, 8), (100, 256), (16, 1)])
def test_tiles_fit_the_usual_group(rows, groups):
    for half in (True, False):
        configs = grouped_configs(groups, rows, 512, 256, half)
        assert configs and all(c["GBLOCK"] >= groups and c["YBLOCK"] >= 16 for c in configs)
        assert configs[0]["YBLOCK"] <= max(16, 2 * rows // groups)
