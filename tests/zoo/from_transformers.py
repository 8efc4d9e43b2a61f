"""Networks of the `transformers` package, built from tiny configurations: nothing is ever downloaded."""

from __future__ import annotations

import os
from typing import Any

import pytest
from torch import nn

TOKENS = 96
LABELS = 3


def package() -> Any:
    """The package, kept off the network; the test is skipped where it is not installed."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    return pytest.importorskip("transformers")


def bert_like(width: float) -> dict[str, Any]:
    """What BERT and its kin call their sizes."""
    return {
        "vocab_size": TOKENS,
        "hidden_size": int(64 * width),
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": int(128 * width),
        "max_position_embeddings": 40,
        "num_labels": LABELS,
    }


def bert(width: float = 1.0) -> nn.Module:
    t = package()
    return t.BertForSequenceClassification(t.BertConfig(**bert_like(width)))


def roberta(width: float = 1.0) -> nn.Module:
    t = package()
    return t.RobertaForSequenceClassification(t.RobertaConfig(**bert_like(width)))


def electra(width: float = 1.0) -> nn.Module:
    t = package()
    config = t.ElectraConfig(**bert_like(width), embedding_size=int(32 * width))
    return t.ElectraForSequenceClassification(config)


def albert(width: float = 1.0) -> nn.Module:
    """One layer's weights serve all three layers."""
    t = package()
    sizes = bert_like(width) | {"num_hidden_layers": 3}
    return t.AlbertForSequenceClassification(t.AlbertConfig(**sizes, embedding_size=int(32 * width)))


def distilbert(width: float = 1.0) -> nn.Module:
    t = package()
    config = t.DistilBertConfig(
        vocab_size=TOKENS,
        dim=int(64 * width),
        n_layers=2,
        n_heads=4,
        hidden_dim=int(128 * width),
        max_position_embeddings=40,
        num_labels=LABELS,
    )
    return t.DistilBertForSequenceClassification(config)


def gpt2_config(width: float) -> Any:
    return package().GPT2Config(
        vocab_size=TOKENS,
        n_embd=int(64 * width),
        n_layer=2,
        n_head=4,
        n_positions=40,
        num_labels=LABELS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        use_cache=False,
    )


def gpt2(width: float = 1.0) -> nn.Module:
    return package().GPT2LMHeadModel(gpt2_config(width))


def gpt2_classifier(width: float = 1.0) -> nn.Module:
    return package().GPT2ForSequenceClassification(gpt2_config(width))


def opt(width: float = 1.0) -> nn.Module:
    t = package()
    config = t.OPTConfig(
        vocab_size=TOKENS,
        hidden_size=int(64 * width),
        word_embed_proj_dim=int(64 * width),
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=int(128 * width),
        max_position_embeddings=40,
        use_cache=False,
    )
    return t.OPTForCausalLM(config)


def llama_like(width: float, key_value_heads: int) -> dict[str, Any]:
    """What Llama and its kin call their sizes."""
    return {
        "vocab_size": TOKENS,
        "hidden_size": int(64 * width),
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": key_value_heads,
        "intermediate_size": int(128 * width),
        "max_position_embeddings": 40,
        "use_cache": False,
    }


def llama(width: float = 1.0) -> nn.Module:
    t = package()
    return t.LlamaForCausalLM(t.LlamaConfig(**llama_like(width, 4)))


def mistral(width: float = 1.0) -> nn.Module:
    """Two key heads for four query heads."""
    t = package()
    return t.MistralForCausalLM(t.MistralConfig(**llama_like(width, 2), head_dim=int(16 * width)))


def qwen2(width: float = 1.0) -> nn.Module:
    """Biases on query, key and value; the head tied to the tokens."""
    t = package()
    return t.Qwen2ForCausalLM(t.Qwen2Config(**llama_like(width, 2), tie_word_embeddings=True))
