"""Networks for pictures of the `transformers` package, built from tiny configurations."""

from __future__ import annotations

from typing import Any

from torch import nn

from zoo.from_transformers import LABELS, package


def vit_like(width: float) -> dict[str, Any]:
    """What ViT and DeiT call their sizes."""
    return {
        "image_size": 32,
        "patch_size": 8,
        "hidden_size": int(64 * width),
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": int(128 * width),
        "num_labels": LABELS,
    }


def vit(width: float = 1.0) -> nn.Module:
    t = package()
    return t.ViTForImageClassification(t.ViTConfig(**vit_like(width)))


def deit(width: float = 1.0) -> nn.Module:
    t = package()
    return t.DeiTForImageClassification(t.DeiTConfig(**vit_like(width)))


def swin(width: float = 1.0) -> nn.Module:
    t = package()
    config = t.SwinConfig(
        image_size=32,
        patch_size=4,
        embed_dim=int(32 * width),
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=LABELS,
    )
    return t.SwinForImageClassification(config)


def convnext(width: float = 1.0) -> nn.Module:
    t = package()
    sizes = [int(n * width) for n in (16, 32, 64)]
    config = t.ConvNextConfig(num_stages=3, hidden_sizes=sizes, depths=[2, 2, 2], image_size=32, num_labels=LABELS)
    return t.ConvNextForImageClassification(config)


def resnet(width: float = 1.0) -> nn.Module:
    t = package()
    config = t.ResNetConfig(
        embedding_size=int(16 * width),
        hidden_sizes=[int(n * width) for n in (64, 128, 256)],
        depths=[2, 2, 2],
        layer_type="bottleneck",
        num_labels=LABELS,
    )
    return t.ResNetForImageClassification(config)


def mobilenet_v2(width: float = 1.0) -> nn.Module:
    t = package()
    config = t.MobileNetV2Config(
        image_size=32,
        depth_multiplier=0.5 * width,
        depth_divisible_by=1,
        min_depth=1,
        finegrained_output=False,
        num_labels=LABELS,
    )
    return t.MobileNetV2ForImageClassification(config)


def regnet(width: float = 1.0) -> nn.Module:
    """Groups given by their width: as many groups, each narrower."""
    t = package()
    config = t.RegNetConfig(
        embedding_size=int(16 * width),
        hidden_sizes=[int(n * width) for n in (32, 64, 128)],
        depths=[2, 2, 2],
        groups_width=int(8 * width),
        layer_type="y",
        num_labels=LABELS,
    )
    return t.RegNetForImageClassification(config)


def segformer(width: float = 1.0) -> nn.Module:
    t = package()
    config = t.SegformerConfig(
        num_encoder_blocks=2,
        depths=[2, 2],
        sr_ratios=[4, 1],
        hidden_sizes=[int(n * width) for n in (32, 64)],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[2, 4],
        mlp_ratios=[2, 2],
        decoder_hidden_size=int(64 * width),
        num_labels=LABELS,
    )
    return t.SegformerForSemanticSegmentation(config)
