"""Vision models of the TorchBench list, written here from the published architectures.

Every builder takes ``small`` (reduced widths and images, for CPUs) and returns ``(module, args)``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..torchvision_cpu import import_torchvision


def conv_norm(
    cin: int, cout: int, k: int, stride: int = 1, *, norm=nn.BatchNorm2d, act=nn.ReLU, pad: int | None = None
) -> nn.Sequential:
    """Convolution, normalisation, activation: the block nearly all of these nets are made of."""
    layers: list[nn.Module] = [nn.Conv2d(cin, cout, k, stride, k // 2 if pad is None else pad, bias=norm is None)]
    if norm is not None:
        layers.append(norm(cout))
    if act is not None:
        layers.append(act())
    return nn.Sequential(*layers)


# --------------------------------------------------------------------------- U-Net (Ronneberger et al., 2015)
class DoubleConv(nn.Sequential):
    def __init__(self, cin: int, cout: int, mid: int | None = None):
        super().__init__(conv_norm(cin, mid or cout, 3), conv_norm(mid or cout, cout, 3))


class UNet(nn.Module):
    """U-Net with bilinear upsampling, padded where the sides are odd."""

    def __init__(self, channels: int = 3, classes: int = 2, width: int = 64):
        super().__init__()
        w = [width, width * 2, width * 4, width * 8, width * 8]
        self.stem = DoubleConv(channels, w[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), DoubleConv(a, b)) for a, b in zip(w, w[1:]))
        outs = [width * 4, width * 2, width, width]
        self.up = nn.ModuleList()
        below = w[4]
        for skip, out in zip(reversed(w[:4]), outs):
            self.up.append(DoubleConv(below + skip, out, (below + skip) // 2))
            below = out
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = [self.stem(x)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.up:
            skip = skips.pop()
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            dy, dx = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
            x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            x = up(torch.cat([skip, x], dim=1))
        return self.head(x)


def pytorch_unet(small: bool):
    return UNet(width=8 if small else 64), (torch.randn(1, 3, *((48, 56) if small else (640, 959))),)


# --------------------------------------------------------------------------- Super SloMo (Jiang et al., 2018)
class SloMoUNet(nn.Module):
    """Encoder-decoder with average pooling and leaky activations that predicts optical flow."""

    def __init__(self, cin: int, cout: int, width: int):
        super().__init__()
        self.in1, self.in2 = nn.Conv2d(cin, width, 7, padding=3), nn.Conv2d(width, width, 7, padding=3)
        sizes = [
            (width, 2 * width, 5),
            (2 * width, 4 * width, 3),
            (4 * width, 8 * width, 3),
            (8 * width, 16 * width, 3),
            (16 * width, 16 * width, 3),
        ]
        self.down = nn.ModuleList(
            nn.ModuleList([nn.Conv2d(a, b, k, padding=k // 2), nn.Conv2d(b, b, k, padding=k // 2)]) for a, b, k in sizes
        )
        ups = [
            (16 * width, 16 * width),
            (16 * width, 8 * width),
            (8 * width, 4 * width),
            (4 * width, 2 * width),
            (2 * width, width),
        ]
        self.up = nn.ModuleList(
            nn.ModuleList([nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(2 * b, b, 3, padding=1)]) for a, b in ups
        )
        self.out = nn.Conv2d(width, cout, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.in1(x), 0.1)
        skips = [F.leaky_relu(self.in2(x), 0.1)]
        for a, b in self.down:
            x = F.avg_pool2d(skips[-1], 2)
            x = F.leaky_relu(a(x), 0.1)
            skips.append(F.leaky_relu(b(x), 0.1))
        x = skips.pop()
        for a, b in self.up:
            x = F.interpolate(x, scale_factor=2, mode="bilinear")
            x = F.leaky_relu(a(x), 0.1)
            x = F.leaky_relu(b(torch.cat((x, skips.pop()), 1)), 0.1)
        return F.leaky_relu(self.out(x), 0.1)


def warp_back(image: Tensor, flow: Tensor) -> Tensor:
    """Sample ``image`` (N, C, H, W) at positions moved by ``flow`` (N, 2, H, W, in pixels)."""
    h, w = image.shape[2:]
    gy, gx = torch.meshgrid(torch.arange(h, device=image.device), torch.arange(w, device=image.device), indexing="ij")
    x = 2 * ((gx.unsqueeze(0) + flow[:, 0]) / w - 0.5)
    y = 2 * ((gy.unsqueeze(0) + flow[:, 1]) / h - 0.5)
    return F.grid_sample(image, torch.stack((x, y), dim=3), align_corners=False)


class SuperSloMo(nn.Module):
    """Two frames in, the frame at time ``t`` between them out."""

    def __init__(self, width: int):
        super().__init__()
        self.flow, self.interpolate = SloMoUNet(6, 4, width), SloMoUNet(20, 5, width)

    def forward(self, first: Tensor, second: Tensor, t: Tensor):
        flow = self.flow(torch.cat((first, second), 1))
        f01, f10 = flow[:, :2], flow[:, 2:]
        t = t.view(-1, 1, 1, 1)
        ft0 = -(1 - t) * t * f01 + t * t * f10
        ft1 = (1 - t) * (1 - t) * f01 - t * (1 - t) * f10
        g0, g1 = warp_back(first, ft0), warp_back(second, ft1)
        refined = self.interpolate(torch.cat((first, second, f01, f10, ft1, ft0, g1, g0), 1))
        ft0, ft1 = refined[:, :2] + ft0, refined[:, 2:4] + ft1
        v0 = torch.sigmoid(refined[:, 4:5])
        v1 = 1 - v0
        g0, g1 = warp_back(first, ft0), warp_back(second, ft1)
        w0, w1 = (1 - t) * v0, t * v1
        return (w0 * g0 + w1 * g1) / (w0 + w1 + 1e-6), f01, f10


def super_slomo(small: bool):
    n, side = (1, 64) if small else (6, 352)
    return SuperSloMo(4 if small else 32), (
        torch.rand(n, 3, side, side),
        torch.rand(n, 3, side, side),
        torch.linspace(0.2, 0.8, n),
    )


# --------------------------------------------------------------------------- residual generators: CycleGAN, StarGAN,
# background matting
class ResidualBlock(nn.Module):
    def __init__(self, width: int, norm, reflect: bool = False):
        super().__init__()
        mode = "reflect" if reflect else "zeros"
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, padding_mode=mode, bias=False),
            norm(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, padding_mode=mode, bias=False),
            norm(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def cyclegan(small: bool):
    """The generator of Zhu et al., 2017: 7×7 stem with reflection, two strided steps, nine residual blocks, two
    transposed steps.
    """
    w, blocks, side = (8, 3, 48) if small else (64, 9, 256)
    layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, w, 7), nn.InstanceNorm2d(w), nn.ReLU(True)]
    for i in (1, 2):
        layers += [nn.Conv2d(w * i, w * i * 2, 3, 2, 1), nn.InstanceNorm2d(w * i * 2), nn.ReLU(True)]
    layers += [ResidualBlock(w * 4, nn.InstanceNorm2d, reflect=True) for _ in range(blocks)]
    for i in (4, 2):
        layers += [
            nn.ConvTranspose2d(w * i, w * i // 2, 3, 2, 1, output_padding=1),
            nn.InstanceNorm2d(w * i // 2),
            nn.ReLU(True),
        ]
    layers += [nn.ReflectionPad2d(3), nn.Conv2d(w, 3, 7), nn.Tanh()]
    return nn.Sequential(*layers), (torch.randn(1, 3, side, side),)


class StarGANGenerator(nn.Module):
    """Choi et al., 2018: the target label is tiled over the image and given as further channels."""

    def __init__(self, width: int, labels: int, blocks: int):
        super().__init__()

        def norm(c):
            return nn.InstanceNorm2d(c, affine=True, track_running_stats=True)

        layers: list[nn.Module] = [
            nn.Conv2d(3 + labels, width, 7, 1, 3, bias=False),
            norm(width),
            nn.ReLU(inplace=True),
        ]
        c = width
        for _ in range(2):
            layers += [nn.Conv2d(c, c * 2, 4, 2, 1, bias=False), norm(c * 2), nn.ReLU(inplace=True)]
            c *= 2
        layers += [ResidualBlock(c, norm) for _ in range(blocks)]
        for _ in range(2):
            layers += [nn.ConvTranspose2d(c, c // 2, 4, 2, 1, bias=False), norm(c // 2), nn.ReLU(inplace=True)]
            c //= 2
        self.main = nn.Sequential(*layers, nn.Conv2d(c, 3, 7, 1, 3, bias=False), nn.Tanh())

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        tiled = label.view(label.size(0), label.size(1), 1, 1).repeat(1, 1, x.size(2), x.size(3))
        return self.main(torch.cat([x, tiled], dim=1))


def stargan(small: bool):
    w, n, side = (8, 2, 32) if small else (64, 16, 128)
    return StarGANGenerator(w, 5, 2 if small else 6), (
        torch.randn(n, 3, side, side),
        torch.randint(0, 2, (n, 5)).float(),
    )


class BackgroundMatting(nn.Module):
    """Sengupta et al., 2020: separate encoders for image, background, segmentation and neighbouring frames; a context
    switch of 1×1
    convolutions; residual blocks; one decoder for the matte and one for the foreground."""

    def __init__(self, width: int, first_blocks: int, second_blocks: int):
        super().__init__()

        def encoder(cin: int) -> nn.Sequential:
            return nn.Sequential(
                nn.ReflectionPad2d(3),
                conv_norm(cin, width, 7, pad=0),
                conv_norm(width, 2 * width, 3, 2),
                conv_norm(2 * width, 4 * width, 3, 2),
            )

        self.image, self.back, self.seg, self.multi = encoder(3), encoder(3), encoder(1), encoder(4)
        self.prep = nn.ModuleList(conv_norm(8 * width, width, 1) for _ in range(3))
        self.shared = nn.Sequential(
            conv_norm(7 * width, 4 * width, 1), *[ResidualBlock(4 * width, nn.BatchNorm2d) for _ in range(first_blocks)]
        )
        self.alpha_blocks = nn.Sequential(*[ResidualBlock(4 * width, nn.BatchNorm2d) for _ in range(second_blocks)])
        self.fore_blocks = nn.Sequential(*[ResidualBlock(4 * width, nn.BatchNorm2d) for _ in range(second_blocks)])

        def up(cin: int, cout: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), conv_norm(cin, cout, 3)
            )

        self.alpha = nn.Sequential(
            up(4 * width, 2 * width), up(2 * width, width), nn.ReflectionPad2d(3), nn.Conv2d(width, 1, 7), nn.Tanh()
        )
        self.fore1 = up(4 * width, 2 * width)
        self.fore2 = nn.Sequential(up(4 * width, width), nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7))

    def forward(self, image: Tensor, back: Tensor, seg: Tensor, multi: Tensor):
        x = self.image[1](self.image[0](image))
        half = self.image[2](x)
        img = self.image[3](half)
        context = [
            p(torch.cat([img, e], 1)) for p, e in zip(self.prep, (self.back(back), self.seg(seg), self.multi(multi)))
        ]
        shared = self.shared(torch.cat([img, *context], 1))
        fore = self.fore1(self.fore_blocks(shared))
        return self.alpha(self.alpha_blocks(shared)), self.fore2(torch.cat([fore, half], 1))


def background_matting(small: bool):
    w, side = (8, 48) if small else (64, 512)
    net = BackgroundMatting(w, 2 if small else 7, 1 if small else 3)
    return net, tuple(torch.rand(1, c, side, side) for c in (3, 3, 1, 4))


# --------------------------------------------------------------------------- GAN discriminator (Radford et al., 2016)
def dcgan(small: bool):
    w, n = (8, 4) if small else (64, 256)
    layers: list[nn.Module] = [nn.Conv2d(3, w, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for i in (1, 2, 4):
        layers += [
            nn.Conv2d(w * i, w * i * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(w * i * 2),
            nn.LeakyReLU(0.2, inplace=True),
        ]
    layers += [nn.Conv2d(w * 8, 1, 4, 1, 0, bias=False), nn.Sigmoid()]
    return nn.Sequential(*layers), (torch.randn(n, 3, 64, 64),)


# --------------------------------------------------------------------------- LearningToPaint (Huang et al., 2019):
# ResNet-18 actor
class PaintBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int):
        super().__init__()
        self.a = conv_norm(cin, cout, 3, stride)
        self.b = conv_norm(cout, cout, 3, act=None)
        self.skip = conv_norm(cin, cout, 1, stride, act=None) if stride != 1 or cin != cout else nn.Sequential()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.b(self.a(x)) + self.skip(x))


class Painter(nn.Module):
    def __init__(self, width: int, inputs: int = 9, outputs: int = 65):
        super().__init__()
        self.stem = conv_norm(inputs, width, 3, 2)
        stages, c = [], width
        for i, stride in enumerate((2, 2, 2, 2)):
            stages += [PaintBlock(c, width << i, stride), PaintBlock(width << i, width << i, 1)]
            c = width << i
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(c, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(self.stages(self.stem(x)), 4)
        return torch.sigmoid(self.head(x.view(x.size(0), -1)))


def learning_to_paint(small: bool):
    return Painter(8 if small else 64), (torch.rand(2 if small else 96, 9, 128, 128),)


# --------------------------------------------------------------------------- YOLOv3 (Redmon and Farhadi, 2018)
class DarkResidual(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.a, self.b = dark(c, c // 2, 1), dark(c // 2, c, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(self.a(x))


def dark(cin: int, cout: int, k: int, stride: int = 1) -> nn.Sequential:
    return conv_norm(cin, cout, k, stride, act=lambda: nn.LeakyReLU(0.1))


class YOLOv3(nn.Module):
    """Darknet-53, three scales; in training raw maps, in inference boxes as well."""

    anchors = (((116, 90), (156, 198), (373, 326)), ((30, 61), (62, 45), (59, 119)), ((10, 13), (16, 30), (33, 23)))

    def __init__(self, width: int, classes: int, depths=(1, 2, 8, 8, 4)):
        super().__init__()
        self.classes = classes
        self.stem = dark(3, width, 3)
        self.stages = nn.ModuleList()
        c = width
        for d in depths:
            self.stages.append(nn.Sequential(dark(c, 2 * c, 3, 2), *[DarkResidual(2 * c) for _ in range(d)]))
            c *= 2
        out = 3 * (classes + 5)
        self.neck, self.head, self.lateral = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        cin = c
        for i in range(3):
            m = c >> (i + 1)
            self.neck.append(
                nn.Sequential(
                    dark(cin, m, 1), dark(m, 2 * m, 3), dark(2 * m, m, 1), dark(m, 2 * m, 3), dark(2 * m, m, 1)
                )
            )
            self.head.append(nn.Sequential(dark(m, 2 * m, 3), nn.Conv2d(2 * m, out, 1)))
            if i < 2:
                self.lateral.append(dark(m, m // 2, 1))
                cin = m // 2 + (c >> (i + 1))

    def decode(self, p: Tensor, anchors, side: int) -> Tensor:
        n, _, h, w = p.shape
        p = p.view(n, 3, self.classes + 5, h, w).permute(0, 1, 3, 4, 2)
        gy, gx = torch.meshgrid(torch.arange(h, device=p.device), torch.arange(w, device=p.device), indexing="ij")
        stride = side / h
        xy = (p[..., :2].sigmoid() + torch.stack((gx, gy), -1)) * stride
        wh = p[..., 2:4].exp() * torch.tensor(anchors, dtype=p.dtype, device=p.device).view(1, 3, 1, 1, 2)
        return torch.cat((xy, wh, p[..., 4:].sigmoid()), -1).reshape(n, -1, self.classes + 5)

    def forward(self, x: Tensor):
        side = x.shape[2]
        feats, h = [], self.stem(x)
        for stage in self.stages:
            h = stage(h)
            feats.append(h)
        maps, h = [], feats[-1]
        for i in range(3):
            h = self.neck[i](h)
            maps.append(self.head[i](h))
            if i < 2:
                h = torch.cat((F.interpolate(self.lateral[i](h), scale_factor=2.0, mode="nearest"), feats[-2 - i]), 1)
        if self.training:
            return tuple(maps)
        return torch.cat([self.decode(p, a, side) for p, a in zip(maps, self.anchors)], 1), tuple(maps)


def yolov3(small: bool):
    net = YOLOv3(4, 4, (1, 1, 2, 2, 1)) if small else YOLOv3(32, 80)
    return net, (torch.rand(1, 3, *((64, 96) if small else (384, 512))),)


# --------------------------------------------------------------------------- MoCo (He et al., 2020): two encoders and
# a queue of keys
class MoCo(nn.Module):
    def __init__(self, encoder, dim: int, queue: int, momentum: float = 0.999, temperature: float = 0.07):
        super().__init__()
        self.query, self.key = encoder(dim), encoder(dim)
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.data.copy_(q.data)
            k.requires_grad = False
        self.momentum, self.temperature, self.size = momentum, temperature, queue
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue), dim=0))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def update_key_encoder(self) -> None:
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.mul_(self.momentum).add_(q, alpha=1.0 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        at = int(self.pointer)
        self.queue[:, at : at + keys.shape[0]] = keys.T
        self.pointer[0] = (at + keys.shape[0]) % self.size

    def forward(self, im_q: Tensor, im_k: Tensor):
        q = F.normalize(self.query(im_q), dim=1)
        with torch.no_grad():
            self.update_key_encoder()
            k = F.normalize(self.key(im_k), dim=1)
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        self.enqueue(k)
        return logits, torch.zeros(logits.shape[0], dtype=torch.long, device=logits.device)


def moco(small: bool):
    torchvision = import_torchvision()
    n, side = (2, 64) if small else (32, 224)
    make = (
        (lambda dim: torchvision.models.resnet18(num_classes=dim))
        if small
        else (lambda dim: torchvision.models.resnet50(num_classes=dim))
    )
    return MoCo(make, 32 if small else 128, 64 if small else 32000), (
        torch.randn(n, 3, side, side),
        torch.randn(n, 3, side, side),
    )


# --------------------------------------------------------------------------- EfficientDet (Tan et al., 2020)
class SeparableConv(nn.Sequential):
    def __init__(self, cin: int, cout: int, norm: bool = True):
        layers: list[nn.Module] = [
            nn.Conv2d(cin, cin, 3, padding=1, groups=cin, bias=False),
            nn.Conv2d(cin, cout, 1, bias=not norm),
        ]
        if norm:
            layers.append(nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01))
        super().__init__(*layers)


class BiFPNLayer(nn.Module):
    """Weighted bidirectional fusion of five levels (fast normalised fusion)."""

    def __init__(self, width: int, levels: int = 5):
        super().__init__()
        self.levels = levels
        self.down = nn.ModuleList(SeparableConv(width, width) for _ in range(levels - 1))
        self.up = nn.ModuleList(SeparableConv(width, width) for _ in range(levels - 1))
        self.down_weight = nn.Parameter(torch.ones(levels - 1, 2))
        self.up_weight = nn.Parameter(torch.ones(levels - 1, 3))

    @staticmethod
    def fuse(weights: Tensor, xs: list[Tensor]) -> Tensor:
        w = F.relu(weights)
        w = w / (w.sum() + 1e-4)
        return F.silu(sum(wi * x for wi, x in zip(w.unbind(), xs)))

    def forward(self, xs: list[Tensor]) -> list[Tensor]:
        mid = list(xs)
        for i in range(self.levels - 2, -1, -1):
            above = F.interpolate(mid[i + 1], size=mid[i].shape[-2:], mode="nearest")
            mid[i] = self.down[i](self.fuse(self.down_weight[i], [xs[i], above]))
        out = list(mid)
        for i in range(1, self.levels):
            below = F.max_pool2d(out[i - 1], 3, 2, 1)
            parts = [xs[i], mid[i], below] if i < self.levels - 1 else [xs[i], below]
            out[i] = self.up[i - 1](self.fuse(self.up_weight[i - 1][: len(parts)], parts))
        return out


class EfficientDet(nn.Module):
    def __init__(self, backbone: str, width: int, layers: int, head_depth: int, classes: int):
        super().__init__()
        import_torchvision()
        import timm

        self.backbone = timm.create_model(backbone, pretrained=False, features_only=True, out_indices=(2, 3, 4))
        cs = self.backbone.feature_info.channels()
        self.lateral = nn.ModuleList(conv_norm(c, width, 1, act=None) for c in cs)
        self.extra = conv_norm(cs[-1], width, 1, act=None)
        self.fpn = nn.ModuleList(BiFPNLayer(width) for _ in range(layers))
        self.trunk = nn.ModuleDict(
            {
                k: nn.ModuleList(SeparableConv(width, width, norm=False) for _ in range(head_depth))
                for k in ("class", "box")
            }
        )
        self.norms = nn.ModuleDict(
            {
                k: nn.ModuleList(
                    nn.ModuleList(nn.BatchNorm2d(width, eps=1e-3) for _ in range(5)) for _ in range(head_depth)
                )
                for k in ("class", "box")
            }
        )
        self.predict = nn.ModuleDict(
            {"class": SeparableConv(width, 9 * classes, norm=False), "box": SeparableConv(width, 36, norm=False)}
        )

    def forward(self, x: Tensor):
        feats = self.backbone(x)
        levels = [lat(f) for lat, f in zip(self.lateral, feats)]
        p6 = F.max_pool2d(self.extra(feats[-1]), 3, 2, 1)
        levels += [p6, F.max_pool2d(p6, 3, 2, 1)]
        for layer in self.fpn:
            levels = layer(levels)
        out = {}
        for kind in ("class", "box"):
            maps = []
            for i, h in enumerate(levels):
                for conv, norms in zip(self.trunk[kind], self.norms[kind]):
                    h = F.silu(norms[i](conv(h)))
                h = self.predict[kind](h)
                maps.append(h.permute(0, 2, 3, 1).reshape(h.shape[0], -1, h.shape[1] // 9))
            out[kind] = torch.cat(maps, 1)
        return out["class"], out["box"]


def efficientdet(small: bool):
    net = EfficientDet("efficientnet_b0", 16, 1, 1, 4) if small else EfficientDet("efficientnet_b1", 88, 4, 3, 90)
    return net, (torch.rand(1, 3, *((256, 256) if small else (640, 640))),)


def maskrcnn(small: bool):
    detection = import_torchvision().models.detection
    if small:  # a light backbone, small images and few proposals: the point is the control flow
        backbone = detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None)
        kept = {f"rpn_{when}_nms_top_n_{mode}": 6 for when in ("pre", "post") for mode in ("train", "test")}
        net = detection.MaskRCNN(
            backbone,
            num_classes=5,
            min_size=64,
            max_size=96,
            rpn_batch_size_per_image=16,
            box_batch_size_per_image=8,
            box_detections_per_img=4,
            **kept,
        )
    else:
        net = detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None)
    side = 64 if small else 800
    images = [torch.rand(3, side, side), torch.rand(3, side, side * 5 // 4)]
    targets = [
        {
            "boxes": torch.tensor([[4.0, 6.0, side / 2, side / 2]]),
            "labels": torch.tensor([1]),
            "masks": torch.ones(1, i.shape[1], i.shape[2], dtype=torch.uint8),
        }
        for i in images
    ]
    return net, (images, targets)


BUILDERS = {
    "pytorch_unet": pytorch_unet,
    "Super_SloMo": super_slomo,
    "pytorch_CycleGAN_and_pix2pix": cyclegan,
    "pytorch_stargan": stargan,
    "Background_Matting": background_matting,
    "dcgan": dcgan,
    "LearningToPaint": learning_to_paint,
    "yolov3": yolov3,
    "moco": moco,
    "timm_efficientdet": efficientdet,
    "vision_maskrcnn": maskrcnn,
}
