"""VGG with batch norm: a plan of numbers and pools, then flatten and a large classifier."""

from __future__ import annotations

from torch import Tensor, nn


def make_layers(plan: list[int | str], in_channels: int = 3) -> nn.Sequential:
    """Convolutions of the planned widths; "M" halves the picture."""
    layers: list[nn.Module] = []
    for item in plan:
        if item == "M":
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        else:
            layers += [nn.Conv2d(in_channels, int(item), 3, padding=1), nn.BatchNorm2d(int(item)), nn.ReLU(True)]
            in_channels = int(item)
    return nn.Sequential(*layers)


class VGG(nn.Module):
    """Features of 2 x 2 positions, flattened into three linear layers."""

    def __init__(self, plan: list[int | str], hidden: int, num_classes: int = 10) -> None:
        super().__init__()
        self.features = make_layers(plan)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        last = next(int(item) for item in reversed(plan) if item != "M")
        self.classifier = nn.Sequential(
            nn.Linear(last * 2 * 2, hidden),
            nn.ReLU(True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(True),
            nn.Dropout(0.5),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))
        x = x.view(x.size(0), -1)
        return self.classifier(x)


def vgg11(width: float = 1.0) -> VGG:
    """Eight convolutions, as in configuration A."""
    a, b, c, d = (int(n * width) for n in (16, 32, 64, 128))
    return VGG([a, "M", b, "M", c, c, "M", d, d, "M", d, d, "M"], hidden=int(256 * width))
