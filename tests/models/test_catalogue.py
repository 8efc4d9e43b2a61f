"""What holds for every network, whatever is inside."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.errors import ConfigError, ModelError
from potluck.models.catalogue import catalogue, find_model, input_for

NAMES = list(catalogue())
SMALL = {  # inputs and vocabularies that keep these tests fast
    "transformer": {"shape": (6,), "classes": 11},
    "rnn": {"shape": (6,), "classes": 11},
    "vit-small": {"shape": (3, 32, 32), "classes": 11},
}


def options(name: str) -> dict[str, object]:
    return SMALL.get(name, {"shape": input_for(name), "classes": 11})


def example(name: str, batch: int = 2) -> Tensor:
    shape = options(name)["shape"]
    return torch.randint(11, (batch, *shape)) if len(shape) == 1 else torch.randn(batch, *shape)


def shapes(net: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in net.state_dict().items()}


def test_names() -> None:
    assert set(NAMES) == {
        "heterofl-cnn",
        "preresnet18",
        "transformer",
        "resnet18",
        "resnet34",
        "flanc-cnn",
        "flanc-resnet18",
        "rnn",
        "vit-small",
        "lg-mlp",
        "lg-cnn",
    }


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("heterofl-cnn", (1, 28, 28)),
        ("preresnet18", (3, 32, 32)),
        ("transformer", (64,)),
        ("rnn", (80,)),
        ("vit-small", (3, 224, 224)),
    ],
)
def test_default_input(name: str, shape: tuple[int, ...]) -> None:
    assert input_for(name) == shape


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"no model 'heterofl_cnn'; did you mean 'heterofl-cnn'\?"):
        find_model("heterofl_cnn")
    with pytest.raises(ConfigError, match=r"no model 'zebra'; there are flanc-cnn, flanc-resnet18"):
        input_for("zebra")


@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_level_trains(name: str) -> None:
    torch.manual_seed(0)
    net = find_model(name)(1 / 16, **options(name)).train()
    inputs = example(name)
    logits = net(inputs)
    assert logits.shape == ((2, 6, 11) if name == "transformer" else (2, 11))
    targets = torch.randint(11, logits.shape[:-1])
    nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten()).backward()
    gradients = {name: parameter.grad for name, parameter in net.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
    assert gradients["head.weight"].abs().sum() > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [1.0, 0.3])
def test_the_head_is_called_head_and_keeps_a_row_per_class(name: str, width: float) -> None:
    with torch.device("meta"):
        net = find_model(name)(width, **options(name))
    assert isinstance(net.head, nn.Linear)
    assert net.head.out_features == 11


def size(name: str, **rounding: str) -> int:
    """Parameters at a width where rounding up gives every network a channel more than rounding to the nearest."""
    with torch.device("meta"):
        return sum(p.numel() for p in find_model(name)(0.285, **options(name), **rounding).parameters())


@pytest.mark.parametrize("name", NAMES)
def test_every_network_rounds_as_its_paper_does_unless_told_otherwise(name: str) -> None:
    usual = "round" if name in ("resnet18", "resnet34", "flanc-cnn", "flanc-resnet18", "rnn") else "ceil"
    assert size(name, rounding="round") < size(name, rounding="ceil")
    assert size(name) == size(name, rounding=usual)


@settings(max_examples=15, deadline=None)
@given(
    width=st.floats(min_value=0.01, max_value=1.0),
    name=st.sampled_from(NAMES),
    rounding=st.sampled_from(["ceil", "round"]),
)
def test_any_width_runs_and_is_part_of_the_full_network(width: float, name: str, rounding: str) -> None:
    with torch.device("meta"):
        narrow, wide = (find_model(name)(ratio, **options(name), rounding=rounding).eval() for ratio in (width, 1.0))
        assert narrow(example(name)).shape[-1] == 11
    small, large = shapes(narrow), shapes(wide)
    if name == "flanc-resnet18":  # a narrow layer1 has a shortcut that the full one does not need
        small = {key: shape for key, shape in small.items() if key in large}
    assert set(small) == set(large)
    assert all(len(small[key]) == len(large[key]) for key in large)
    assert all(s <= w for key in large for s, w in zip(small[key], large[key], strict=True))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"transformer", "rnn", "lg-mlp"}))
@pytest.mark.parametrize("shape", [(28, 28), (1, 0, 0), (7,)])
def test_images_of_the_wrong_shape_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError) as error:
        find_model(name)(shape=shape)
    assert f"shape is {shape}, but {name} takes images" in str(error.value)


@pytest.mark.parametrize("name", ["transformer", "rnn"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (0,), ()])
def test_sequences_of_the_wrong_shape_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError) as error:
        find_model(name)(shape=shape)
    assert f"shape is {shape}, but {name} takes token sequences" in str(error.value)
