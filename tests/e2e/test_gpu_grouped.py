"""Products of row groups on a CUDA device. Run with ``-m gpu``."""

import pytest
import torch

import lamina

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ends", [(10, 10, 300, 512), (512, 512, 512, 512), (128, 256, 384, 512)])
def test_agrees_with_a_loop_over_groups(dtype, ends):
    torch.manual_seed(0)
    x, w = torch.randn(512, 96, device="cuda").to(dtype), torch.randn(4, 96, 160, device="cuda").to(dtype) / 10
    offs = torch.tensor(ends, dtype=torch.int32, device="cuda")

    def fn(x, w, offs):
        return torch.nn.functional.silu(torch._grouped_mm(x, w, offs=offs)) * 2

    try:
        torch._grouped_mm(x, w, offs=offs)
    except RuntimeError as refused:
        pytest.skip(f"this release of torch has no grouped product of {dtype}: {str(refused)[:60]}")
    with torch.no_grad():
        got = lamina.compile(fn, fullgraph=True)(x, w, offs)
    rows, start = [], 0
    for g, end in enumerate(ends):
        rows.append(x[start:end].double() @ w[g].double())
        start = end
    want = 2 * torch.nn.functional.silu(torch.cat(rows))
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got.double(), want, rtol=bound, atol=bound)
