"""HuggingFace models of the suite: names to classes, configurations and inputs. Weights are random; nothing is
downloaded.

Full size is the configuration class's default unless ``FULL`` says otherwise. The small size shrinks every field
named in ``SHRINK``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

# model name -> (model class, configuration class); names that differ from the class are the suite's own.
MODELS = {
    "AlbertForMaskedLM": ("AlbertForMaskedLM", "AlbertConfig"),
    "AlbertForQuestionAnswering": ("AlbertForQuestionAnswering", "AlbertConfig"),
    "AllenaiLongformerBase": ("LongformerForMaskedLM", "LongformerConfig"),
    "BartForCausalLM": ("BartForCausalLM", "BartConfig"),
    "BartForConditionalGeneration": ("BartForConditionalGeneration", "BartConfig"),
    "BertForMaskedLM": ("BertForMaskedLM", "BertConfig"),
    "BertForQuestionAnswering": ("BertForQuestionAnswering", "BertConfig"),
    "BlenderbotForCausalLM": ("BlenderbotForCausalLM", "BlenderbotConfig"),
    "BlenderbotSmallForCausalLM": ("BlenderbotSmallForCausalLM", "BlenderbotSmallConfig"),
    "BlenderbotSmallForConditionalGeneration": ("BlenderbotSmallForConditionalGeneration", "BlenderbotSmallConfig"),
    "CamemBert": ("CamembertForMaskedLM", "CamembertConfig"),
    "DebertaForMaskedLM": ("DebertaForMaskedLM", "DebertaConfig"),
    "DebertaForQuestionAnswering": ("DebertaForQuestionAnswering", "DebertaConfig"),
    "DebertaV2ForMaskedLM": ("DebertaV2ForMaskedLM", "DebertaV2Config"),
    "DebertaV2ForQuestionAnswering": ("DebertaV2ForQuestionAnswering", "DebertaV2Config"),
    "DistilBertForMaskedLM": ("DistilBertForMaskedLM", "DistilBertConfig"),
    "DistilBertForQuestionAnswering": ("DistilBertForQuestionAnswering", "DistilBertConfig"),
    "DistillGPT2": ("GPT2LMHeadModel", "GPT2Config"),
    "ElectraForCausalLM": ("ElectraForCausalLM", "ElectraConfig"),
    "ElectraForQuestionAnswering": ("ElectraForQuestionAnswering", "ElectraConfig"),
    "GPT2ForSequenceClassification": ("GPT2ForSequenceClassification", "GPT2Config"),
    "GoogleFnet": ("FNetForMaskedLM", "FNetConfig"),
    "LayoutLMForMaskedLM": ("LayoutLMForMaskedLM", "LayoutLMConfig"),
    "LayoutLMForSequenceClassification": ("LayoutLMForSequenceClassification", "LayoutLMConfig"),
    "M2M100ForConditionalGeneration": ("M2M100ForConditionalGeneration", "M2M100Config"),
    "MBartForCausalLM": ("MBartForCausalLM", "MBartConfig"),
    "MBartForConditionalGeneration": ("MBartForConditionalGeneration", "MBartConfig"),
    "MT5ForConditionalGeneration": ("MT5ForConditionalGeneration", "MT5Config"),
    "MegatronBertForCausalLM": ("MegatronBertForCausalLM", "MegatronBertConfig"),
    "MegatronBertForQuestionAnswering": ("MegatronBertForQuestionAnswering", "MegatronBertConfig"),
    "MobileBertForMaskedLM": ("MobileBertForMaskedLM", "MobileBertConfig"),
    "MobileBertForQuestionAnswering": ("MobileBertForQuestionAnswering", "MobileBertConfig"),
    "OPTForCausalLM": ("OPTForCausalLM", "OPTConfig"),
    "PLBartForCausalLM": ("PLBartForCausalLM", "PLBartConfig"),
    "PLBartForConditionalGeneration": ("PLBartForConditionalGeneration", "PLBartConfig"),
    "PegasusForCausalLM": ("PegasusForCausalLM", "PegasusConfig"),
    "PegasusForConditionalGeneration": ("PegasusForConditionalGeneration", "PegasusConfig"),
    "RobertaForCausalLM": ("RobertaForCausalLM", "RobertaConfig"),
    "RobertaForQuestionAnswering": ("RobertaForQuestionAnswering", "RobertaConfig"),
    "T5ForConditionalGeneration": ("T5ForConditionalGeneration", "T5Config"),
    "T5Small": ("T5ForConditionalGeneration", "T5Config"),
    "TrOCRForCausalLM": ("TrOCRForCausalLM", "TrOCRConfig"),
    "XGLMForCausalLM": ("XGLMForCausalLM", "XGLMConfig"),
    "XLNetLMHeadModel": ("XLNetLMHeadModel", "XLNetConfig"),
    "YituTechConvBert": ("ConvBertForMaskedLM", "ConvBertConfig"),
    # the same library's models under TorchBench's names
    "hf_Albert": ("AlbertForMaskedLM", "AlbertConfig"),
    "hf_Bart": ("BartForConditionalGeneration", "BartConfig"),
    "hf_Bert": ("BertForMaskedLM", "BertConfig"),
    "hf_BigBird": ("BigBirdForMaskedLM", "BigBirdConfig"),
    "hf_DistilBert": ("DistilBertForMaskedLM", "DistilBertConfig"),
    "hf_GPT2": ("GPT2LMHeadModel", "GPT2Config"),
    "hf_GPT2_large": ("GPT2LMHeadModel", "GPT2Config"),
    "hf_Longformer": ("LongformerForMaskedLM", "LongformerConfig"),
    "hf_Reformer": ("ReformerModelWithLMHead", "ReformerConfig"),
    "hf_T5": ("T5ForConditionalGeneration", "T5Config"),
    "hf_T5_base": ("T5ForConditionalGeneration", "T5Config"),
    "hf_T5_large": ("T5ForConditionalGeneration", "T5Config"),
}

_BART_BASE = dict(
    d_model=768,
    encoder_layers=6,
    decoder_layers=6,
    encoder_attention_heads=12,
    decoder_attention_heads=12,
    encoder_ffn_dim=3072,
    decoder_ffn_dim=3072,
)
FULL: dict[str, dict] = {
    "DistillGPT2": dict(n_layer=6),
    "BlenderbotForCausalLM": dict(
        d_model=2560,
        encoder_layers=2,
        decoder_layers=24,
        encoder_attention_heads=32,
        decoder_attention_heads=32,
        encoder_ffn_dim=10240,
        decoder_ffn_dim=10240,
    ),
    "hf_Albert": dict(hidden_size=768, intermediate_size=3072, num_attention_heads=12, vocab_size=30000),
    "hf_Bart": _BART_BASE,
    "hf_GPT2_large": dict(n_embd=1280, n_layer=36, n_head=20),
    "hf_T5_base": dict(d_model=768, d_ff=3072, num_layers=12, num_heads=12),
    "hf_T5_large": dict(d_model=1024, d_ff=4096, num_layers=24, num_heads=16),
    "hf_Reformer": dict(axial_pos_shape=(32, 32), axial_pos_embds_dim=(64, 192), hidden_size=256, is_decoder=True),
    "hf_BigBird": dict(attention_type="block_sparse"),
}

# field -> value at small size; only fields that the configuration has are set
SHRINK = dict(
    vocab_size=211,
    hidden_size=32,
    d_model=32,
    n_embd=32,
    dim=32,
    embedding_size=32,
    word_embed_proj_dim=32,
    d_ff=64,
    d_inner=64,
    d_kv=16,
    d_head=16,
    n_inner=None,
    intermediate_size=64,
    hidden_dim=64,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    ffn_dim=64,
    num_hidden_layers=2,
    num_layers=2,
    num_decoder_layers=2,
    n_layer=2,
    n_layers=2,
    encoder_layers=2,
    decoder_layers=2,
    num_attention_heads=2,
    num_heads=2,
    n_head=2,
    n_heads=2,
    attention_heads=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    max_position_embeddings=128,
    n_positions=128,
)
SMALL: dict[str, dict] = {
    "MobileBertForMaskedLM": dict(embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    "MobileBertForQuestionAnswering": dict(embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    "AllenaiLongformerBase": dict(attention_window=[8, 8]),
    "hf_Longformer": dict(attention_window=[8, 8]),
    "YituTechConvBert": dict(embedding_size=32, num_attention_heads=4),
    "DistillGPT2": dict(n_layer=2),
    "hf_GPT2_large": dict(n_layer=3),
    "hf_T5_large": dict(num_layers=3, num_decoder_layers=3),
    "hf_BigBird": dict(block_size=4, num_random_blocks=2, max_position_embeddings=128),
    "hf_Reformer": dict(
        axial_pos_shape=(4, 8),
        axial_pos_embds_dim=(8, 24),
        attention_head_size=16,
        feed_forward_size=64,
        num_buckets=4,
        lsh_attn_chunk_length=8,
        local_attn_chunk_length=8,
        attn_layers=["local", "lsh"],
        num_hidden_layers=2,
        is_decoder=True,
    ),
    "hf_Albert": dict(embedding_size=16),
    "AlbertForMaskedLM": dict(embedding_size=16),
    "AlbertForQuestionAnswering": dict(embedding_size=16),
    "GoogleFnet": dict(tpu_short_seq_length=32),
    "ElectraForCausalLM": dict(embedding_size=16),
    "ElectraForQuestionAnswering": dict(embedding_size=16),
}
# (batch, sequence) at full size where it is not (8, 128): models whose attention works in blocks need longer rows
SHAPES = {
    "AllenaiLongformerBase": (2, 1024),
    "hf_Longformer": (2, 1024),
    "hf_BigBird": (2, 1024),
    "hf_Reformer": (4, 1024),
}
SMALL_SHAPES = {"hf_BigBird": (2, 64), "hf_Reformer": (2, 32), "GoogleFnet": (2, 32)}

_DROPOUTS = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "classifier_dropout",
    "dropout_rate",
    "summary_last_dropout",
    "summary_first_dropout",
    "seq_classif_dropout",
    "qa_dropout",
    "layerdrop",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "hidden_dropout",
    "pooler_dropout",
    "local_attention_probs_dropout_prob",
    "lsh_attention_probs_dropout_prob",
    "classifier_dropout_prob",
)


def make_config(name: str, small: bool):
    import transformers

    cls = getattr(transformers, MODELS[name][1])
    base = cls(**FULL.get(name, {}))
    fields = dict(FULL.get(name, {}))
    if small:
        for key, value in SHRINK.items():
            if key in base.to_dict() | getattr(base, "attribute_map", {}) and key not in ("hidden_dim",):
                fields[key] = value
        for key in ("hidden_dim",):
            if MODELS[name][1] == "DistilBertConfig":
                fields[key] = 64
        if "num_hidden_layers" in fields and any(
            k in fields for k in ("encoder_layers", "n_layer", "num_layers", "n_layers")
        ):
            fields.pop("num_hidden_layers")
        for alias, real in (
            ("hidden_size", ("d_model", "n_embd", "dim")),
            (
                "num_attention_heads",
                (
                    "n_head",
                    "n_heads",
                    "num_heads",
                    "encoder_attention_heads",
                    "attention_heads",
                    "decoder_attention_heads",
                ),
            ),
        ):
            if alias in fields and any(r in fields for r in real):
                fields.pop(alias)
        fields.update(SMALL.get(name, {}))
    for key in _DROPOUTS:
        if isinstance(getattr(base, key, None), float):
            fields[key] = 0.0
    fields["use_cache"] = False
    for key in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_eos_token_id"):
        value = getattr(base, key, None)
        if small and isinstance(value, int) and value >= SHRINK["vocab_size"]:
            fields[key] = {"pad_token_id": 0, "bos_token_id": 1}.get(key, 2)
    if MODELS[name][0] == "GPT2ForSequenceClassification":
        fields["pad_token_id"] = 0
    if MODELS[name][0] in ("ElectraForCausalLM", "MegatronBertForCausalLM", "RobertaForCausalLM", "TrOCRForCausalLM"):
        fields["is_decoder"] = True
    return cls(**fields)


def make_inputs(name: str, config, small: bool) -> dict[str, torch.Tensor]:
    """Keyword arguments of one training or inference call: int64 token ids (batch, sequence) and the labels of the
    model's own loss.
    """
    cls = MODELS[name][0]
    batch, length = SMALL_SHAPES.get(name, (2, 16)) if small else SHAPES.get(name, (8, 128))
    vocab = config.vocab_size

    def ids() -> torch.Tensor:
        return torch.randint(3, vocab, (batch, length))

    out = {"input_ids": ids()}
    if "QuestionAnswering" in cls:
        out["start_positions"], out["end_positions"] = (
            torch.randint(0, length, (batch,)),
            torch.randint(0, length, (batch,)),
        )
    elif "SequenceClassification" in cls:
        out["labels"] = torch.randint(0, 2, (batch,))
    else:
        out["labels"] = ids()
    if cls.endswith("ConditionalGeneration"):
        out["decoder_input_ids"] = ids()
    if cls.startswith("LayoutLM"):
        box = torch.randint(0, 100, (batch, length, 4)).sort(-1).values
        out["bbox"] = box
    return out


def build(name: str, small: bool):
    import transformers

    config = make_config(name, small)
    model = getattr(transformers, MODELS[name][0])(config)
    return model, (), make_inputs(name, config, small)


@dataclasses.dataclass(frozen=True)
class Missing:
    """A model of the list whose code no longer exists anywhere that can be installed."""

    reason: str


MISSING: dict[str, Missing] = {"Speech2Text2ForCausalLM": Missing("the class was removed from transformers")}
Builder = Callable[[str, bool], tuple]
