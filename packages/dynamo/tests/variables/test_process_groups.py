"""Collectives that are given a process group, in a group of one."""

import pytest
import torch
import torch.distributed as dist

import lamina_dynamo

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without collectives")


@pytest.fixture
def group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        yield dist.group.WORLD
    finally:
        lamina_dynamo.reset()
        dist.destroy_process_group()


def test_functional_collectives_of_a_group_are_one_graph(group):
    import torch.distributed._functional_collectives as collectives

    programs = [
        lambda x: collectives.all_reduce(x * 2, "sum", group) + 1,
        lambda x: collectives.all_gather_tensor(x.sin(), 0, group) * 2,
        lambda x: collectives.reduce_scatter_tensor(x + 1, "sum", 0, group),
        lambda x: collectives.all_gather_tensor(x.sin(), 1, group) * 2,
        lambda x: collectives.reduce_scatter_tensor(x + 1, "sum", 1, group),
        lambda x: collectives.broadcast(x + group.rank(), 0, group) * group.size(),
        lambda x: x if group.group_name == "" else x + 1,
    ]
    for program in programs:
        x = torch.randn(4, 6)
        want = program(x)
        got = lamina_dynamo.optimize("eager", fullgraph=True)(program)(x)
        torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(want))


def test_differentiable_collectives_that_refuse_compilers_run_in_eager(group):
    from torch.distributed.nn.functional import all_reduce

    def program(x):
        return (all_reduce(x * 2) ** 2).sum()

    x = torch.randn(4, requires_grad=True)
    program(x).backward()
    want, x.grad = x.grad, None
    lamina_dynamo.optimize("eager")(program)(x).backward()
    torch.testing.assert_close(x.grad, want)
