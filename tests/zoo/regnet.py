"""RegNet: stages of bottlenecks without expansion, grouped with a fixed number of groups, squeeze and excitation."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn


def norm_act(channels: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]


class YBlock(nn.Module):
    """1 x 1, grouped 3 x 3, channel weights, 1 x 1; the squeeze is a quarter of the block's input."""

    def __init__(self, w_in: int, w_out: int, stride: int, groups: int) -> None:
        super().__init__()
        self.proj: nn.Module | None = None
        if w_in != w_out or stride != 1:
            self.proj = nn.Sequential(nn.Conv2d(w_in, w_out, 1, stride, bias=False), nn.BatchNorm2d(w_out))
        self.a = nn.Sequential(nn.Conv2d(w_in, w_out, 1, bias=False), *norm_act(w_out))
        self.b = nn.Sequential(
            nn.Conv2d(w_out, w_out, 3, stride, 1, groups=groups, bias=False),
            *norm_act(w_out),
        )
        squeeze = w_in // 4
        self.se = nn.Sequential(
            nn.AdaptiveAvgPool2d((1, 1)),
            nn.Conv2d(w_out, squeeze, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(squeeze, w_out, 1),
            nn.Sigmoid(),
        )
        self.c = nn.Sequential(nn.Conv2d(w_out, w_out, 1, bias=False), nn.BatchNorm2d(w_out))
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x))
        y = self.c(y * self.se(y))
        return self.activation((x if self.proj is None else self.proj(x)) + y)


class RegNet(nn.Module):
    """Stages by name, as configuration files list them."""

    def __init__(self, widths: list[int], depths: list[int], groups: int, num_classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, 2, 1, bias=False), *norm_act(widths[0]))
        w_in = widths[0]
        stages: OrderedDict[str, nn.Module] = OrderedDict()
        for i, (w_out, depth) in enumerate(zip(widths, depths, strict=True)):
            blocks = OrderedDict()
            for j in range(depth):
                blocks[f"block{j}"] = YBlock(w_in, w_out, 2 if j == 0 and i > 0 else 1, groups)
                w_in = w_out
            stages[f"stage{i + 1}"] = nn.Sequential(blocks)
        self.trunk = nn.Sequential(stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(w_in, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.avgpool(self.trunk(self.stem(x))).flatten(start_dim=1))


def regnet_y(width: float = 1.0) -> RegNet:
    return RegNet([int(n * width) for n in (32, 64, 128)], [2, 2, 2], groups=4)
