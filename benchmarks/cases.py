"""The fixed programs of the CPU and GPU benchmarks, by name, with their sizes.

``CPU`` and ``GPU`` map a name to a builder without arguments that returns (module, args, kwargs). The suite's worker
runs them under the keys ``cpu/<name>`` and
``gpu/<name>``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .models import vision_packages


class FusedPointwise(nn.Module):
    """gelu, tanh, sigmoid and arithmetic on one large tensor with a learned scale: bandwidth-bound once fused."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(F.gelu(x) * torch.tanh(y) + x * self.scale) * y


class SoftmaxLayerNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.softmax(x, dim=-1) + x)


class LSTMLoop(nn.Module):
    def __init__(self, inp: int = 32, hidden: int = 64):
        super().__init__()
        self.cell, self.hidden = nn.LSTMCell(inp, hidden), hidden

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], self.hidden)
        outs = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            outs.append(h)
        return torch.stack(outs, 1)


def mlp(width: int = 32, batch: int = 8, layers: int = 4):
    body = []
    for i in range(layers):
        body += [nn.Linear(width, width)] + ([nn.ReLU()] if i < layers - 1 else [])
    return nn.Sequential(*body), (torch.randn(batch, width),), {}


def torchvision_model(name: str, batch: int, side: int = 224):
    tv = vision_packages.import_torchvision()
    return (
        vision_packages.without_dropout(getattr(tv.models, name)(weights=None)),
        (torch.randn(batch, 3, side, side),),
        {},
    )


def timm_model(name: str, batch: int):
    vision_packages.import_torchvision()
    import timm

    return (
        vision_packages.without_dropout(timm.create_model(name, pretrained=False)),
        (torch.randn(batch, 3, 224, 224),),
        {},
    )


def language_model(kind: str, batch: int, length: int, **fields):
    """A transformers model with random weights and its own loss. ``kind``: bert, gpt2, t5, llama."""
    vision_packages.import_torchvision()
    import transformers as tr

    config_name, model_name = {
        "bert": ("BertConfig", "BertForMaskedLM"),
        "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
        "t5": ("T5Config", "T5ForConditionalGeneration"),
        "llama": ("LlamaConfig", "LlamaForCausalLM"),
    }[kind]
    drops = (
        dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        if kind == "bert"
        else dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        if kind == "gpt2"
        else dict(dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0)
        if kind == "t5"
        else {}
    )
    config = getattr(tr, config_name)(use_cache=False, **drops, **fields)
    if kind == "t5":  # some versions of transformers drop the field from the constructor but their model reads it
        config.decoder_start_token_id, config.pad_token_id = 0, 0
    model = getattr(tr, model_name)(config)
    ids = torch.randint(3, config.vocab_size, (batch, length))
    return model, (), {"input_ids": ids, "labels": ids.clone()}


def transformer_stack(layers: int):
    """Equal encoder layers, for the cost of compiling repeated structure."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), (torch.randn(4, 16, 64),), {}


CPU = {
    "mlp": mlp,
    "fused_pointwise": lambda: (FusedPointwise(), (torch.randn(4_000_000), torch.randn(4_000_000)), {}),
    "softmax_layer_norm": lambda: (SoftmaxLayerNorm(1024), (torch.randn(4096, 1024),), {}),
    "resnet18": lambda: torchvision_model("resnet18", 4),
    "mobilenet_v3_large": lambda: torchvision_model("mobilenet_v3_large", 4),
    "vit_tiny": lambda: timm_model("vit_tiny_patch16_224", 4),
    "convnext_atto": lambda: timm_model("convnext_atto", 4),
    "bert_base": lambda: language_model("bert", 2, 64),
    "gpt2": lambda: language_model("gpt2", 2, 64, n_layer=6),
    "t5_small": lambda: language_model("t5", 2, 64),
    "llama_small": lambda: language_model(
        "llama",
        2,
        64,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=8000,
    ),
    "lstm_cell_loop": lambda: (LSTMLoop(), (torch.randn(8, 24, 32),), {}),
    "layers_2": lambda: transformer_stack(2),
    "layers_12": lambda: transformer_stack(12),
    "layers_48": lambda: transformer_stack(48),
}

GPU = {
    "mlp": lambda: mlp(256, 32),
    "bert_base": lambda: language_model("bert", 16, 512),
    "gpt2": lambda: language_model("gpt2", 8, 512),
    "t5_small": lambda: language_model("t5", 16, 512),
    "llama": lambda: language_model(
        "llama",
        8,
        512,
        hidden_size=1024,
        intermediate_size=2752,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=16,
        vocab_size=32000,
    ),
    "resnet50": lambda: torchvision_model("resnet50", 64),
    "mobilenet_v3_large": lambda: torchvision_model("mobilenet_v3_large", 128),
    "vit_b_16": lambda: timm_model("vit_base_patch16_224", 64),
    "convnext_b": lambda: timm_model("convnext_base", 32),
}
