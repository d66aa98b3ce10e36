"""Import torchvision beside a torch build that its compiled operators do not match.

torchvision's Python half registers shape functions for ``torchvision::nms`` at import, which fails when its C++ half
did not load. Where the operators are
missing they are defined here in plain PyTorch, so that detection models run as well.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

_libraries: list[torch.library.Library] = []


def keep_boxes(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Greedy non-maximum suppression: (N, 4) boxes and (N,) scores to the kept indices, best first."""
    order = scores.argsort(descending=True, stable=True)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while order.numel():
        best, rest = order[0], order[1:]
        kept.append(best)
        low, high = torch.maximum(boxes[best, :2], boxes[rest, :2]), torch.minimum(boxes[best, 2:], boxes[rest, 2:])
        inter = (high - low).clamp(min=0).prod(1)
        order = rest[inter / (area[best] + area[rest] - inter) <= threshold]
    return torch.stack(kept) if kept else scores.new_zeros(0, dtype=torch.long)


def roi_align(image: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Tensor:
    """Average of bilinear samples of every output cell (He et al., 2017): image (N, C, H, W), rois (K, 5) to (K, C,
    height, width).

    A ratio of 0 takes two samples a side.
    """
    n = ratio if ratio > 0 else 2
    off = 0.5 if aligned else 0.0
    start, end = rois[:, 1:3] * scale - off, rois[:, 3:5] * scale - off
    size = end - start
    if not aligned:
        size = size.clamp(min=1.0)
    at = (torch.arange(max(height, width) * n, device=image.device) + 0.5) / n
    x = start[:, 0:1] + at[: width * n] * (size[:, 0:1] / width)
    y = start[:, 1:2] + at[: height * n] * (size[:, 1:2] / height)
    h, w = image.shape[2:]
    out = []
    for k in range(rois.shape[0]):
        inside_y, inside_x = (y[k] >= -1) & (y[k] <= h), (x[k] >= -1) & (x[k] <= w)
        yy, xx = y[k].clamp(0, h - 1), x[k].clamp(0, w - 1)
        y0, x0 = yy.floor().long(), xx.floor().long()
        y1, x1 = (y0 + 1).clamp(max=h - 1), (x0 + 1).clamp(max=w - 1)
        fy, fx = (yy - y0)[:, None], (xx - x0)[None, :]
        img = image[rois[k, 0].long()]
        rows0, rows1 = img[:, y0], img[:, y1]
        v = (
            rows0[:, :, x0] * (1 - fy) * (1 - fx)
            + rows0[:, :, x1] * (1 - fy) * fx
            + rows1[:, :, x0] * fy * (1 - fx)
            + rows1[:, :, x1] * fy * fx
        )
        v = v * (inside_y[:, None] & inside_x[None, :])
        out.append(v.view(image.shape[1], height, n, width, n).mean((2, 4)))
    return torch.stack(out).to(image.dtype) if out else image.new_zeros(0, image.shape[1], height, width)


def import_torchvision():
    """torchvision; where its operators are missing they are defined first."""
    try:
        import torchvision
    except RuntimeError as e:
        if "torchvision::" not in str(e):
            raise
        for name in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        _define_operators()
        import torchvision
    if not torchvision.extension._has_ops():
        if not _libraries:
            _define_operators()
        # torchvision asks this before each call of an operator, each module by a name of its own; they exist now
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] == "torchvision" and hasattr(module, "_has_ops"):
                module._has_ops = lambda: True
    return torchvision


_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor",
)


def _roi_align_backward(grad, rois, scale, rows, columns, n, channels, height, width, ratio, aligned):
    image = grad.new_zeros((n, channels, height, width)).requires_grad_()
    with torch.enable_grad():
        out = roi_align(image, rois, scale, rows, columns, ratio, aligned)
    return torch.autograd.grad(out, image, grad)[0] if out.requires_grad else image.detach()


def _remember(ctx, inputs, output) -> None:
    image, rois, *ctx.rest = inputs
    ctx.sizes = image.shape
    ctx.save_for_backward(rois)


def _differentiate(ctx, grad):
    scale, rows, columns, ratio, aligned = ctx.rest
    (rois,) = ctx.saved_tensors
    found = torch.ops.torchvision._roi_align_backward(grad, rois, scale, rows, columns, *ctx.sizes, ratio, aligned)
    return found, None, None, None, None, None, None


def _define_operators() -> None:
    """Operators as opaque to a compiler as torchvision's own: kernel, shape and derivative."""
    lib = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        if not hasattr(torch.ops.torchvision, schema.split("(")[0]):
            lib.define(schema)
    kernels = {"nms": keep_boxes, "roi_align": roi_align, "_roi_align_backward": _roi_align_backward}
    for name, kernel in kernels.items():
        lib.impl(name, torch.compiler.disable(kernel), "CPU")

    def shape(image, rois, scale, height, width, ratio, aligned):
        return image.new_empty((rois.size(0), image.size(1), height, width))

    lib.impl("roi_align", shape, "Meta")
    lib.impl("_roi_align_backward", lambda grad, *a: grad.new_empty(a[4:8]), "Meta")
    torch.library.register_autograd("torchvision::roi_align", _differentiate, setup_context=_remember, lib=lib)
    _libraries.append(lib)
