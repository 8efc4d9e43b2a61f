"""MobileNets: inverted residuals with depthwise convolutions (V2), with hard-swish and channel weights (V3)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def conv_bn(inp: int, oup: int, kernel: int, stride: int, act: type[nn.Module], groups: int = 1) -> nn.Sequential:
    """A convolution, its norm and its activation."""
    conv = nn.Conv2d(inp, oup, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(oup), act(inplace=True))  # type: ignore[call-arg]


class InvertedResidual(nn.Module):
    """Expand, filter each channel by itself, project without activation."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        hidden = inp * expand_ratio
        self.use_res_connect = stride == 1 and inp == oup
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(conv_bn(inp, hidden, 1, 1, nn.ReLU6))
        layers += [
            conv_bn(hidden, hidden, 3, stride, nn.ReLU6, groups=hidden),
            nn.Conv2d(hidden, oup, 1, bias=False),
            nn.BatchNorm2d(oup),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        if self.use_res_connect:
            return x + self.conv(x)
        return self.conv(x)


class MobileNetV2(nn.Module):
    """Stages given as (expansion, channels, blocks, stride)."""

    def __init__(self, settings: list[tuple[int, int, int, int]], first: int, last: int, classes: int = 10) -> None:
        super().__init__()
        features: list[nn.Module] = [conv_bn(3, first, 3, 2, nn.ReLU6)]
        channels = first
        for t, c, n, s in settings:
            for i in range(n):
                features.append(InvertedResidual(channels, c, s if i == 0 else 1, expand_ratio=t))
                channels = c
        features.append(conv_bn(channels, last, 1, 1, nn.ReLU6))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = F.adaptive_avg_pool2d(x, (1, 1)).reshape(x.shape[0], -1)
        return self.classifier(x)


class SqueezeExcite(nn.Module):
    """Channel weights with a hard sigmoid, made by 1 x 1 convolutions."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeeze, 1)
        self.fc2 = nn.Conv2d(squeeze, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = F.adaptive_avg_pool2d(x, 1)
        scale = self.fc2(F.relu(self.fc1(scale), inplace=True))
        return F.hardsigmoid(scale) * x


class BneckV3(nn.Module):
    """An inverted residual of free hidden width, kernel and activation, with channel weights if asked."""

    def __init__(self, inp: int, hidden: int, oup: int, kernel: int, stride: int, use_se: bool, use_hs: bool) -> None:
        super().__init__()
        act: type[nn.Module] = nn.Hardswish if use_hs else nn.ReLU
        self.identity = stride == 1 and inp == oup
        self.expand = conv_bn(inp, hidden, 1, 1, act)
        self.depthwise = conv_bn(hidden, hidden, kernel, stride, act, groups=hidden)
        self.se = SqueezeExcite(hidden, hidden // 4) if use_se else nn.Identity()
        self.project = nn.Sequential(nn.Conv2d(hidden, oup, 1, bias=False), nn.BatchNorm2d(oup))

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.se(self.depthwise(self.expand(x))))
        return x + y if self.identity else y


class MobileNetV3(nn.Module):
    """Unit `u`: every width is a multiple of it."""

    def __init__(self, u: int, num_classes: int = 10) -> None:
        super().__init__()
        self.stem = conv_bn(3, 2 * u, 3, 2, nn.Hardswish)
        self.blocks = nn.Sequential(
            BneckV3(2 * u, 4 * u, 2 * u, 3, 1, True, False),
            BneckV3(2 * u, 8 * u, 3 * u, 3, 2, False, False),
            BneckV3(3 * u, 12 * u, 3 * u, 3, 1, False, False),
            BneckV3(3 * u, 12 * u, 5 * u, 5, 2, True, True),
            BneckV3(5 * u, 20 * u, 5 * u, 5, 1, True, True),
        )
        self.head = conv_bn(5 * u, 20 * u, 1, 1, nn.Hardswish)
        self.classifier = nn.Sequential(
            nn.Linear(20 * u, 32 * u), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(32 * u, num_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(self.blocks(self.stem(x)))
        return self.classifier(x.mean((2, 3)))


def mobilenet_v2(width: float = 1.0) -> MobileNetV2:
    settings = [(1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 3, 2), (6, 32, 2, 2)]
    scaled = [(t, int(c * width), n, s) for t, c, n, s in settings]
    return MobileNetV2(scaled, first=int(16 * width), last=int(128 * width))


def mobilenet_v3(width: float = 1.0) -> MobileNetV3:
    return MobileNetV3(u=int(8 * width))
