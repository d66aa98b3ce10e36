"""Type promotion and stride rules against torch."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina_primtorch import strides
from lamina_primtorch.promotion import result_type

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
tensors = st.builds(lambda d, dim: torch.ones((1,) * dim, dtype=d), st.sampled_from(DTYPES), st.integers(0, 2))
numbers = st.sampled_from([True, 3, 2.5, 1j])


@settings(max_examples=300, deadline=None)
@given(tensors, st.one_of(tensors, numbers))
def test_result_type_is_torchs(a, b):
    assert result_type((a, b)) is torch.result_type(a, b)
    if not isinstance(b, torch.Tensor):
        assert result_type((b, a)) is torch.result_type(b, a)


@st.composite
def layouts(draw):
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5]), min_size=0, max_size=4))
    order = draw(st.permutations(range(len(shape))))
    x = torch.zeros([shape[d] for d in order]).permute([list(order).index(d) for d in range(len(shape))])
    for d in range(x.dim()):
        if draw(st.booleans()) and x.shape[d] > 1:
            x = x[(slice(None),) * d + (slice(None, None, 2),)]
    if draw(st.booleans()):
        x = x.expand(2, *x.shape)
    return x


@settings(max_examples=400, deadline=None)
@given(layouts(), st.data())
def test_strides_of_elementwise_results(x, data):
    shape = tuple(x.shape)
    assert strides.elementwise(shape, [(shape, x.stride())]) == torch.neg(x).stride()
    assert strides.like(shape, x.stride()) == torch.empty_like(x).stride()
    assert strides.is_contiguous(shape, x.stride()) == x.is_contiguous()
    other = torch.zeros(shape) if data.draw(st.booleans()) else x
    got = strides.elementwise(shape, [(shape, x.stride()), (shape, other.stride())])
    assert got == torch.add(x, other).stride()


@settings(max_examples=300, deadline=None)
@given(layouts(), st.data())
def test_view_strides(x, data):
    n = x.numel()
    sizes = [s for s in (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 18) if n and n % s == 0] or [1]
    a = data.draw(st.sampled_from(sizes))
    new = strides.infer_view((a, -1) if n else (0, a), n)
    got = strides.view(x.shape, x.stride(), new)
    try:
        want = x.view(new).stride()
    except RuntimeError:
        want = None
    assert got == want
