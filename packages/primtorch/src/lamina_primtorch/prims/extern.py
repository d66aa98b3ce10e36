"""Extern prims: named ATen overloads with ATen's own arguments and semantics, called as they are (or lowered, where a
backend can).

Overloads that are neither decomposed nor listed here stay in the graph as plain calls of the OpOverload; listing one
gives it a stable
name, a definition and samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..spec import define


class OverloadCall:
    """The eager implementation of an extern prim: resolves its overload at the first call."""

    __slots__ = ("packet", "overload", "_op")

    def __init__(self, name: str) -> None:
        self.packet, _, self.overload = name.partition(".")
        self._op: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        op = self._op
        if op is None:
            op = self._op = getattr(getattr(torch.ops.aten, self.packet), self.overload or "default")
        return op(*args, **kwargs)


def _meta_of(name: str) -> Callable[..., Any]:
    def meta(*args: Any, **kwargs: Any) -> Any:
        from ..fallback_meta import meta_by_torch
        from ..shape_rules import rule_by_name

        rule = rule_by_name(name)
        if rule is not None:
            try:
                return rule(args, kwargs)
            except NotImplementedError:
                pass
        packet, _, overload = name.partition(".")
        return meta_by_torch(getattr(getattr(torch.ops.aten, packet), overload or "default"), args, kwargs)

    return meta


EXTERN: list[tuple[str, str, str]] = [
    ("mm", "mm.default", "matrix product of two matrices of one dtype"),
    ("bmm", "bmm.default", "batched matrix product"),
    ("addmm", "addmm.default", "beta * self + alpha * (mat1 @ mat2); self is not read for beta 0"),
    ("baddbmm", "baddbmm.default", "batched addmm"),
    ("mv", "mv.default", "matrix times vector"),
    ("dot", "dot.default", "scalar product of two vectors"),
    ("convolution", "convolution.default", "n-d (transposed, grouped) convolution with bias"),
    ("convolution_backward", "convolution_backward.default", "gradients of convolution for input, weight and"
                                                             " bias, by mask"),
    ("sdpa_flash_cpu", "_scaled_dot_product_flash_attention_for_cpu.default", "attention on CPU: output and logsumexp"),
    ("sdpa_flash_cpu_backward", "_scaled_dot_product_flash_attention_for_cpu_backward.default", "its gradients"),
    ("sdpa_flash", "_scaled_dot_product_flash_attention.default", "attention by the flash kernel"),
    ("sdpa_flash_backward", "_scaled_dot_product_flash_attention_backward.default", "gradients of sdpa_flash"),
    ("sdpa_efficient", "_scaled_dot_product_efficient_attention.default", "attention by the memory-efficient kernel"),
    ("sdpa_efficient_backward", "_scaled_dot_product_efficient_attention_backward.default", "its gradients"),
    ("sdpa_cudnn", "_scaled_dot_product_cudnn_attention.default", "attention by cuDNN"),
    ("sdpa_cudnn_backward", "_scaled_dot_product_cudnn_attention_backward.default", "gradients of sdpa_cudnn"),
    ("max_pool2d", "max_pool2d_with_indices.default", "largest element of each window and its position in the"
                                                      " plane; NaN wins"),
    ("max_pool2d_backward", "max_pool2d_with_indices_backward.default", "gradient sent to the positions"
                                                                        " max_pool2d found"),
    ("max_pool3d", "max_pool3d_with_indices.default", "max_pool2d in three dimensions"),
    ("max_pool3d_backward", "max_pool3d_with_indices_backward.default", "gradient of max_pool3d"),
    ("avg_pool2d", "avg_pool2d.default", "mean of each window; ceil_mode and padding count as eager counts them"),
    ("avg_pool2d_backward", "avg_pool2d_backward.default", "gradient of avg_pool2d"),
    ("avg_pool3d", "avg_pool3d.default", "avg_pool2d in three dimensions"),
    ("avg_pool3d_backward", "avg_pool3d_backward.default", "gradient of avg_pool3d"),
    ("adaptive_avg_pool2d", "_adaptive_avg_pool2d.default", "mean over windows that divide the plane into the"
                                                            " given grid"),
    ("adaptive_avg_pool2d_backward", "_adaptive_avg_pool2d_backward.default", "gradient of adaptive_avg_pool2d"),
    ("adaptive_max_pool2d", "adaptive_max_pool2d.default", "largest element over windows of the given grid and"
                                                           " its position"),
    ("adaptive_max_pool2d_backward", "adaptive_max_pool2d_backward.default", "gradient of adaptive_max_pool2d"),
    ("upsample_nearest2d", "upsample_nearest2d.vec", "nearest source pixel by floor(i * scale)"),
    ("upsample_nearest2d_backward", "upsample_nearest2d_backward.default", "gradient of upsample_nearest2d"),
    ("upsample_bilinear2d", "upsample_bilinear2d.vec", "bilinear interpolation"),
    ("upsample_bilinear2d_backward", "upsample_bilinear2d_backward.default", "gradient of upsample_bilinear2d"),
    ("upsample_bicubic2d", "upsample_bicubic2d.vec", "bicubic interpolation, a = -0.75"),
    ("grid_sampler_2d", "grid_sampler_2d.default", "samples planes at normalized coordinates"),
    ("grid_sampler_2d_backward", "grid_sampler_2d_backward.default", "gradient of grid_sampler_2d"),
    ("embedding_bag", "_embedding_bag.default", "sum, mean or maximum of bags of embedding rows"),
    ("embedding_dense_backward", "embedding_dense_backward.default", "gradient rows added up per index;"
                                                                     " padding_idx gets 0"),
    ("sort", "sort.stable", "sorted values and their indices; NaN counts as largest; stable keeps the order of equals"),
    ("topk", "topk.default", "the k largest (or smallest) along a dimension and their indices; NaN counts as largest"),
    ("kthvalue", "kthvalue.default", "k-th smallest value along a dimension and its index"),
    ("median", "median.dim", "lower median along a dimension and its index; NaN wins"),
    ("mode", "mode.default", "most frequent value along a dimension, the smallest of several"),
    ("searchsorted", "searchsorted.Tensor", "positions that keep a sorted sequence sorted"),
    ("bucketize", "bucketize.Tensor", "index of the bucket each value falls in"),
    ("histc", "histc.default", "counts in equal bins between min and max"),
    ("fft_c2c", "_fft_c2c.default", "discrete Fourier transform, complex to complex"),
    ("fft_r2c", "_fft_r2c.default", "discrete Fourier transform, real to complex"),
    ("fft_c2r", "_fft_c2r.default", "inverse discrete Fourier transform to real"),
    ("cholesky", "linalg_cholesky_ex.default", "Cholesky factor and info"),
    ("qr", "linalg_qr.default", "QR factors"),
    ("svd", "_linalg_svd.default", "singular value decomposition"),
    ("eigh", "_linalg_eigh.default", "eigenvalues and -vectors of a Hermitian matrix"),
    ("lu_factor", "linalg_lu_factor_ex.default", "LU factors, pivots, info"),
    ("linalg_solve", "_linalg_solve_ex.default", "solution of a linear system"),
    ("linalg_inv", "linalg_inv_ex.default", "inverse matrix and info"),
    ("triangular_solve", "linalg_solve_triangular.default", "solution of a triangular system"),
    ("cdist", "_cdist_forward.default", "pairwise p-norm distances"),
    ("masked_scatter", "masked_scatter.default", "successive elements of source written where the mask holds;"
                                                 " too few raise"),
    ("item", "_local_scalar_dense.default", "the one element of a tensor as a Python number"),
    ("lstm_cell_layer", "mkldnn_rnn_layer.default", "one layer of a recurrent net by oneDNN"),
]  # fmt: skip
for _name, _aten, _doc in EXTERN:
    _tags = ["extern"] + (["data_dependent"] if _name == "item" else [])
    define(_name, "(...)", OverloadCall(_aten), _meta_of(_aten), _tags, _doc, "aten::" + _aten)

for _name, _aten, _doc in [
    ("nonzero", "nonzero.default", "row-major positions of the elements that are not 0"),
    ("masked_select", "masked_select.default", "elements where the mask holds, in row-major order"),
    ("unique", "_unique2.default", "sorted distinct elements, inverse, counts"),
    ("bincount", "bincount.default", "how often each non-negative integer occurs"),
]:
    define(_name, "(...)", OverloadCall(_aten), _meta_of(_aten), ["extern", "data_dependent"], _doc, "aten::" + _aten)

RANDOM: list[tuple[str, str, str]] = [
    ("rand", "rand.default", "uniform in [0, 1)"),
    ("randn", "randn.default", "standard normal"),
    ("randint", "randint.low", "uniform integers in [low, high)"),
    ("randint_high", "randint.default", "uniform integers in [0, high)"),
    ("randperm", "randperm.default", "random permutation of 0 .. n-1"),
    ("rand_like", "rand_like.default", "uniform in [0, 1), shaped like a tensor"),
    ("randn_like", "randn_like.default", "standard normal, shaped like a tensor"),
    ("randint_like", "randint_like.default", "uniform integers, shaped like a tensor"),
    ("bernoulli", "bernoulli.default", "1 with the probability of each element, else 0; outside [0, 1] raises"),
    ("bernoulli_p", "bernoulli.p", "1 with probability p, else 0, shaped like a tensor"),
    ("uniform", "uniform.default", "uniform in [from, to), shaped like a tensor"),
    ("normal", "normal_functional.default", "normal with mean and std, shaped like a tensor"),
    ("normal_tensor_float", "normal.Tensor_float", "normal with a tensor of means"),
    ("normal_float_tensor", "normal.float_Tensor", "normal with a tensor of standard deviations"),
    ("normal_tensor_tensor", "normal.Tensor_Tensor", "normal with tensors of means and standard deviations"),
    ("exponential", "exponential.default", "exponential with rate lambd, shaped like a tensor"),
    ("geometric", "geometric.default", "geometric with probability p, shaped like a tensor"),
    ("log_normal", "log_normal.default", "log-normal, shaped like a tensor"),
    ("cauchy", "cauchy.default", "Cauchy, shaped like a tensor"),
    ("random_range", "random.from", "uniform integers in [from, to), shaped like a tensor"),
    ("random", "random.default", "uniform integers over the range of the dtype, shaped like a tensor"),
    ("poisson", "poisson.default", "Poisson with the rate of each element"),
    ("binomial", "binomial.default", "binomial with counts and probabilities"),
    ("multinomial", "multinomial.default", "indices drawn by the weights of each row; bad weights raise"),
    ("native_dropout", "native_dropout.default", "elements zeroed with probability p, the others scaled by"
                                                 " 1/(1-p), and the mask"),
]  # fmt: skip
for _name, _aten, _doc in RANDOM:
    define(_name, "(...)", OverloadCall(_aten), _meta_of(_aten), ["extern", "random"], _doc, "aten::" + _aten)
