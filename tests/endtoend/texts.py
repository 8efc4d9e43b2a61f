"""What text classifiers need: a tokenizer made of the texts themselves, and a small BERT with random weights."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

LONGEST = 32  # tokens
PAD, UNKNOWN, BEGIN, END = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def tokenizer_of(texts: Iterable[str]) -> Any:
    """A tokenizer that knows the most common words of these texts, and puts pairs of texts together as BERT's does."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    words.normalizer, words.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    words.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=2000, special_tokens=list(SPECIAL)))
    words.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}",
        pair=f"{BEGIN} $A {END} $B:1 {END}:1",
        special_tokens=[(each, SPECIAL.index(each)) for each in (BEGIN, END)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD,
        unk_token=UNKNOWN,
        cls_token=BEGIN,
        sep_token=END,
        model_max_length=LONGEST,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def small_bert(words: int, topics: int, features: int) -> nn.Module:
    """One layer of BERT, and a classifier. BERT's own first weights are for far larger networks."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=words,
        hidden_size=features,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=features,
        max_position_embeddings=LONGEST,
        num_labels=topics,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    torch.manual_seed(0)
    return BertForSequenceClassification(config)


def write_table(path: Path, header: list[str], rows: Iterable[Iterable[str]]) -> None:
    """A CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(header)
        table.writerows(rows)
