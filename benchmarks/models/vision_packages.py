"""Models that timm and torchvision ship: names, current names, and what makes them small.

Full size takes timm's default image side. The small size keeps the architecture and shrinks the image; networks whose
structure is tied to the image
or whose weights are too many for a quick run get fewer and narrower blocks through ``SMALL``.
"""

from __future__ import annotations

import torch

from .torchvision_cpu import import_torchvision

# names of the list that timm has renamed since
RENAMED = {
    "adv_inception_v3": "inception_v3.tf_adv_in1k",
    "gluon_inception_v3": "inception_v3.gluon_in1k",
    "jx_nest_base": "nest_base_jx",
    "swsl_resnext101_32x16d": "resnext101_32x16d",
    "timm_efficientnet": "efficientnet_b0",
    "timm_nfnet": "dm_nfnet_f0",
    "timm_regnet": "regnety_120",
    "timm_resnest": "resnest14d",
    "timm_vision_transformer": "vit_small_patch16_224",
    "timm_vision_transformer_large": "vit_giant_patch14_224",
    "timm_vovnet": "vovnet39a",
}
_VIT = dict(embed_dim=48, depth=2, num_heads=3)
# name -> keyword arguments of timm.create_model at small size
SMALL: dict[str, dict] = {
    "beit_base_patch16_224": dict(img_size=64, **_VIT),
    "vit_base_patch16_224": dict(img_size=64, **_VIT),
    "deit_base_distilled_patch16_224": dict(img_size=64, **_VIT),
    "timm_vision_transformer": dict(img_size=64, **_VIT),
    "timm_vision_transformer_large": dict(img_size=56, **_VIT),
    "cait_m36_384": dict(img_size=64, embed_dim=48, depth=2, num_heads=4),
    "convit_base": dict(img_size=64, embed_dim=48, depth=3, num_heads=4, local_up_to_layer=2),
    "gmixer_24_224": dict(img_size=64),
    "gmlp_s16_224": dict(img_size=64),
    "mixer_b16_224": dict(img_size=64),
    "resmlp_12_224": dict(img_size=64),
    "tnt_s_patch16_224": dict(img_size=64, embed_dim=48, inner_dim=16, depth=2, num_heads_inner=2, num_heads_outer=3),
    "xcit_large_24_p8_224": dict(img_size=64, embed_dim=48, depth=2, num_heads=4),
    "volo_d1_224": dict(img_size=64),
    "swin_base_patch4_window7_224": dict(img_size=56, embed_dim=16, depths=(1, 1), num_heads=(2, 4)),
    "jx_nest_base": dict(img_size=64),
    "twins_pcpvt_base": dict(img_size=64, embed_dims=(16, 32, 48, 64), num_heads=(1, 2, 3, 4), depths=(1, 1, 1, 1)),
    "pit_b_224": dict(img_size=64, base_dims=(16, 16, 16), depth=(1, 1, 1), heads=(2, 4, 8)),
    "coat_lite_mini": dict(img_size=64, embed_dims=(16, 32, 48, 64), serial_depths=(1, 1, 1, 1)),
    "convnext_base": dict(depths=(1, 1, 2, 1), dims=(16, 32, 48, 64)),
    "visformer_small": dict(img_size=64, embed_dim=48, depth=(1, 1, 1)),
}
# image side at small size where it is not 64: windows, halos or strides need more, or the weights of the structure do
SMALL_SIDE = {
    "botnet26t_256": 256,
    "eca_botnext26ts_256": 256,
    "eca_halonext26ts": 256,
    "sebotnet33ts_256": 256,
    "mobilevit_s": 64,
    "crossvit_9_240": 240,
    "levit_128": 224,
    "swin_base_patch4_window7_224": 56,
    "timm_vision_transformer_large": 56,
    "adv_inception_v3": 96,
    "inception_v3": 96,
    "gluon_inception_v3": 96,
    "pnasnet5large": 96,
    "alexnet": 96,
    "squeezenet1_1": 64,
    "vgg16": 64,
    "dpn107": 64,
}
TORCHVISION = {
    "alexnet": "alexnet",
    "densenet121": "densenet121",
    "mnasnet1_0": "mnasnet1_0",
    "mobilenet_v2": "mobilenet_v2",
    "mobilenet_v3_large": "mobilenet_v3_large",
    "resnet152": "resnet152",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "resnext50_32x4d": "resnext50_32x4d",
    "shufflenet_v2_x1_0": "shufflenet_v2_x1_0",
    "squeezenet1_1": "squeezenet1_1",
    "vgg16": "vgg16",
}


def without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    """Set every drop probability to 0, so that runs with different random streams can be compared."""
    for m in model.modules():
        for field in ("p", "drop_prob", "drop_rate"):
            if "drop" in type(m).__name__.lower() and isinstance(getattr(m, field, None), float):
                setattr(m, field, 0.0)
    return model


def build_timm(name: str, small: bool):
    import_torchvision()
    import timm

    arch = RENAMED.get(name, name)
    kw = SMALL.get(name, {}) if small else {}
    model = timm.create_model(arch, pretrained=False, **kw)
    side = SMALL_SIDE.get(name, 64) if small else model.default_cfg.get("input_size", (3, 224, 224))[-1]
    return without_dropout(model), (torch.randn(2 if small else 16, 3, side, side),), {}


def build_torchvision(name: str, small: bool):
    tv = import_torchvision()
    if name == "functorch_dp_cifar10":
        model = tv.models.resnet18(norm_layer=lambda c: torch.nn.GroupNorm(c // 16, c))
        return model, (torch.randn(2 if small else 64, 3, 32, 32),), {}
    model = getattr(tv.models, TORCHVISION[name])(weights=None)
    side = SMALL_SIDE.get(name, 64) if small else 224
    return without_dropout(model), (torch.randn(2 if small else 16, 3, side, side),), {}
