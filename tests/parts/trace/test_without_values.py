"""Networks that have shapes but no values."""

from __future__ import annotations

import pytest
import torch

from potluck.models.catalogue import find_model, input_for
from potluck.parts.trace.findings import study


@pytest.mark.parametrize("name", ["heterofl-cnn", "preresnet18", "flanc-cnn", "rnn"])
def test_channels_are_the_same_on_the_meta_device(name: str) -> None:
    shape = input_for(name)
    example = torch.zeros(1, *shape, dtype=torch.long if len(shape) == 1 else torch.float32)
    found = study(find_model(name)(1 / 4), example).channels
    with torch.device("meta"):
        net = find_model(name)(1 / 4)
    shapes = study(net, example.to("meta")).channels
    assert shapes.ids.keys() == found.ids.keys()
    for tensor, ids in found.ids.items():
        assert all(torch.equal(one, other) for one, other in zip(ids, shapes.ids[tensor], strict=True)), tensor
    assert shapes.whole == found.whole
    assert all(tensor.is_meta for tensor in net.state_dict().values())
