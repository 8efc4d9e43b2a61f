"""Residual networks of basic blocks, of bottlenecks, and of bottlenecks with grouped convolutions."""

from __future__ import annotations

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inplanes: int, planes: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample: nn.Module | None = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    """1 x 1 down, 3 x 3 (grouped if asked), 1 x 1 up to four times the width."""

    expansion = 4

    def __init__(self, inplanes: int, planes: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        out = planes * self.expansion
        inner = planes if groups == 1 else planes * 2
        self.conv1 = nn.Conv2d(inplanes, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inplanes != out:
            self.shortcut = nn.Sequential(nn.Conv2d(inplanes, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, four stages, the mean over positions, one linear layer."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        layers: list[int],
        base: int,
        groups: int = 1,
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        self.inplanes = base
        self.conv1 = nn.Conv2d(3, base, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(base)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, base, layers[0], 1, groups)
        self.layer2 = self._make_layer(block, base * 2, layers[1], 2, groups)
        self.layer3 = self._make_layer(block, base * 4, layers[2], 2, groups)
        self.layer4 = self._make_layer(block, base * 8, layers[3], 2, groups)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(base * 8 * block.expansion, num_classes)

    def _make_layer(
        self, block: type[BasicBlock] | type[Bottleneck], planes: int, count: int, stride: int, groups: int
    ) -> nn.Sequential:
        blocks = [block(self.inplanes, planes, stride, groups)]
        self.inplanes = planes * block.expansion
        blocks += [block(self.inplanes, planes, 1, groups) for _ in range(count - 1)]
        return nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(width: float = 1.0) -> ResNet:
    return ResNet(BasicBlock, [2, 2, 2, 2], base=int(16 * width))


def resnet50(width: float = 1.0) -> ResNet:
    return ResNet(Bottleneck, [3, 4, 6, 3], base=int(8 * width))


def resnext(width: float = 1.0) -> ResNet:
    """Four groups in every 3 x 3 convolution, whatever the width."""
    return ResNet(Bottleneck, [2, 2, 2, 2], base=int(16 * width), groups=4)
