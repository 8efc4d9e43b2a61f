"""Which layers are put into factors: the papers' networks, every reason to stay whole, and what users may say."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, weight_norm

from potluck.core.copying import copied
from potluck.core.errors import ModelError
from potluck.models.resnet import resnet18, resnet34
from potluck.parts.lowrank.layers import replace_layers
from potluck.parts.lowrank.survey import FIRST_LAYER, GROUPED, HEAD, NAMED, POINT, READ, Survey, survey

IMAGE = (torch.zeros(1, 3, 8, 8),)
ROW = (torch.zeros(1, 8),)
LOGITS = ("head.weight", "head.bias")


def look(net: nn.Module, start: int | str | None = None, head: Collection[str] = LOGITS, **names: Any) -> Survey:
    return survey(net, IMAGE, head, start, **names)


def chain(*layers: nn.Module) -> nn.Sequential:
    """Layers of eight values called a, b, c …, and a head."""
    named = {chr(ord("a") + place): layer for place, layer in enumerate(layers)}
    return nn.Sequential(OrderedDict(**named, head=nn.Linear(8, 2)))


def eight(count: int = 3) -> list[nn.Linear]:
    return [nn.Linear(8, 8) for _ in range(count)]


def looks_at_row(net: nn.Module, start: int | str | None = None, **names: Any) -> Survey:
    return survey(net, ROW, LOGITS, start, **names)


def runs(net: nn.Module, found: Survey, example: tuple[Tensor, ...]) -> None:
    """With what the survey found, a copy of the network runs and every factor has a part in its output."""
    trial = replace_layers(copied(net), dict.fromkeys(found.layers, 2))
    for parameter in trial.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.1)
    inputs = [tensor.repeat(3, *[1] * (tensor.dim() - 1)) for tensor in example]
    for tensor in inputs:
        if tensor.is_floating_point():
            tensor.normal_()
    with torch.no_grad():
        trial.eval()(*inputs)
    output = trial.train()(*inputs)
    (output.sum() + output.square().sum()).backward()
    for name in found.layers:
        for each in ("first", "second"):
            assert trial.get_parameter(f"{name}.{each}.weight").grad is not None, f"{name} has no part in the output"


# ---- the papers' networks ----


def convolutions(net: nn.Module, of: Collection[str]) -> list[str]:
    """The 3 x 3 convolutions in these blocks, in the order of a ResNet."""
    return [
        name
        for name, module in net.named_modules()
        if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3) and name.startswith(tuple(of))
    ]


BLOCKS = {
    resnet18: ("layer1.1.", "layer2.", "layer3.", "layer4."),
    resnet34: ("layer3.", "layer4."),
}


@pytest.mark.parametrize(
    ("build", "start"),
    [
        (resnet18, None),
        (resnet18, 3),
        (resnet18, "layer1.1"),
        (resnet18, "layer1.1.conv1"),
        (resnet34, None),
        (resnet34, 15),
        (resnet34, "layer3"),
    ],
)
def test_the_papers_networks(build: Callable[[float], nn.Module], start: int | str | None) -> None:
    net = build(0.1)
    found = look(net, start)
    assert list(found.layers) == convolutions(net, BLOCKS[build])
    assert found.whole["stem.0"] == FIRST_LAYER
    assert found.whole["head"] == HEAD
    assert {found.whole[f"layer{stage}.0.shortcut.0"] for stage in (2, 3, 4)} == {POINT}
    assert found.whole["layer1.0.conv1"] == f"it comes before {next(iter(found.layers))}"
    everything = {name for name, module in net.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
    assert set(found.whole) | set(found.layers) == everything
    assert not set(found.whole) & set(found.layers)


def test_the_papers_ranks() -> None:
    found = look(resnet18(1.0))
    ranks = found.ranks(0.5)
    assert [ranks[f"layer{stage}.1.conv2"] for stage in (1, 2, 3, 4)] == [32, 64, 128, 256]
    assert found.ranks(1.0) == {}
    assert found.ranks(0.125)["layer4.0.conv1"] == 64


def test_the_survey_is_in_the_order_in_which_layers_run() -> None:
    net = resnet18(0.1)
    found = look(net)
    order = [*found.whole, *found.layers]
    assert order.index("layer2.0.shortcut.0") < order.index("layer3.0.shortcut.0")
    assert next(iter(found.whole)) == "stem.0"
    assert list(found.whole)[-1] == "head"


class Backwards(nn.Module):
    """Defines its layers from last to first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 2)
        self.c, self.b, self.a = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.c(self.b(self.a(inputs))))
        return logits


def test_the_order_of_running_decides_not_that_of_defining() -> None:
    net = Backwards()
    assert list(looks_at_row(net).layers) == ["b", "c"]
    assert list(looks_at_row(net, 2).layers) == ["c"]
    assert list(looks_at_row(net, "c").layers) == ["c"]
    assert looks_at_row(net).whole == {"a": FIRST_LAYER, "head": HEAD}
    assert looks_at_row(net, "c").whole["b"] == "it comes before c"


# ---- what stays whole by default ----


class Mobile(nn.Module):
    """Pointwise and depthwise convolutions alone."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 16, 1)
        self.last = nn.Conv2d(16, 16, 3, groups=4)
        self.head = nn.Linear(16, 2)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.last(self.point(self.deep(self.stem(images)))).mean((2, 3)))
        return logits


MOBILE = {"stem": FIRST_LAYER, "deep": GROUPED, "last": GROUPED, "head": HEAD}


@pytest.mark.parametrize(("start", "layers"), [(None, ["point"]), (1, ["point"]), (2, []), (100, [])])
def test_a_pointwise_convolution_is_put_into_factors(start: int | None, layers: list[str]) -> None:
    found = look(Mobile(), start)
    assert list(found.layers) == layers
    assert found.whole == {**MOBILE, **({} if layers else {"point": "it comes before the end"})}


def test_a_network_with_nothing_to_put_into_factors() -> None:
    found = look(Mobile(), whole=["point"])
    assert found.layers == {}
    assert found.ranks(0.5) == {}
    assert found.whole == {**MOBILE, "point": NAMED}


@pytest.mark.parametrize("name", MOBILE)
def test_a_name_in_factor_overrules_a_default(name: str) -> None:
    net = Mobile()
    found = look(net, factor=[name])
    assert set(found.layers) == {name, "point"}
    assert found.whole == {other: reason for other, reason in MOBILE.items() if other != name}
    runs(net, found, IMAGE)


class Branches(nn.Module):
    """What reads the same: a 1x1 beside a 3x3, and two 1x1 beside each other; then a 1x1 on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.small, self.large = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.one, self.other = nn.Conv2d(8, 8, 1, stride=2), nn.Conv2d(8, 8, 1, stride=2)
        self.alone = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 2)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        x = self.small(x) + self.large(x)
        x = self.one(x) + self.other(x)
        logits: Tensor = self.head(self.alone(x).mean((2, 3)))
        return logits


def test_a_1x1_convolution_stays_whole_only_beside_a_larger_one() -> None:
    net = Branches()
    found = look(net)
    assert list(found.layers) == ["large", "one", "other", "alone"]
    assert found.whole == {"stem": FIRST_LAYER, "small": POINT, "head": HEAD}
    runs(net, found, IMAGE)


def test_a_1x1_convolution_beside_a_larger_one_in_groups_is_no_shortcut() -> None:
    net = Branches()
    net.large = nn.Conv2d(8, 8, 3, padding=1, groups=2)
    found = look(net)
    assert list(found.layers) == ["small", "one", "other", "alone"]
    assert found.whole == {"stem": FIRST_LAYER, "large": GROUPED, "head": HEAD}


@pytest.mark.parametrize("start", [1, 3, 100])
def test_a_name_in_factor_overrules_the_start(start: int) -> None:
    net = chain(*eight(4))
    found = looks_at_row(net, start, factor=["a", "b", "head"])
    assert {"a", "b", "head"} <= set(found.layers)
    assert set(found.layers) - {"a", "b", "head"} == {1: {"c", "d"}, 3: {"d"}, 100: set()}[start]


def test_whole_wins_over_everything() -> None:
    net = resnet18(0.1)
    found = look(net, "layer1.0", factor=["layer2", "stem", "head"], whole=["layer2", "head", "layer3.1.conv2"])
    assert {found.whole[name] for name in ("layer2.0.conv1", "layer2.1.conv2", "head", "layer3.1.conv2")} == {NAMED}
    assert found.whole["layer2.0.shortcut.0"] == NAMED
    assert {"stem.0", "layer1.0.conv1", "layer3.1.conv1"} <= set(found.layers)


def test_the_most_specific_of_two_names_wins() -> None:
    net = resnet18(0.1)
    found = look(net, factor=["layer2.0.conv1", "layer3"], whole=["layer2", "layer3.1"])
    assert {"layer2.0.conv1", "layer3.0.conv1", "layer3.0.shortcut.0"} <= set(found.layers)
    assert {found.whole[name] for name in ("layer2.0.conv2", "layer2.1.conv1", "layer3.1.conv1")} == {NAMED}


def test_a_block_is_not_another_whose_name_begins_alike() -> None:
    net = nn.Sequential(OrderedDict([("in", nn.Linear(8, 8)), *((f"l{n}", nn.Linear(8, 8)) for n in (1, 10, 2))]))
    found = survey(net, ROW, (), whole=["l1"])
    assert list(found.layers) == ["l10", "l2"]


@pytest.mark.parametrize("start", [5, 100])
def test_more_layers_whole_than_there_are(start: int) -> None:
    found = looks_at_row(chain(*eight(4)), start)
    assert found.layers == {}
    assert found.whole["b"] == "it comes before the end"
    assert found.whole["a"] == FIRST_LAYER


@pytest.mark.parametrize("start", [None, 1, 2, 3])
def test_naming_in_whole_what_is_whole_already_changes_no_other_layer(start: int | None) -> None:
    net = chain(*eight(4))
    assert list(looks_at_row(net, start, whole=["a"]).layers) == list(looks_at_row(net, start).layers)
    assert list(looks_at_row(net, start, whole=["head"]).layers) == list(looks_at_row(net, start).layers)


def test_naming_a_shortcut_in_factor_or_whole_changes_no_other_layer() -> None:
    net, shortcut = resnet34(0.1), "layer2.0.shortcut"
    usual = set(look(net, 15).layers)
    assert set(look(net, 15, factor=[shortcut]).layers) == usual | {f"{shortcut}.0"}
    assert set(look(net, 15, whole=[shortcut]).layers) == usual


def test_a_first_layer_that_cannot_be_in_factors_is_the_first_layer_all_the_same() -> None:
    net = chain(*eight(3))
    net.get_parameter("a.weight").requires_grad_(False)
    assert list(looks_at_row(net).layers) == ["b", "c"]
    assert list(looks_at_row(net, 2).layers) == ["c"]


def test_the_block_where_factors_would_begin_may_be_named_in_whole() -> None:
    net = resnet18(0.1)
    assert list(look(net, whole=["layer1.1"]).layers) == convolutions(net, ("layer2.", "layer3.", "layer4."))


# ---- names nobody knows ----


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"factor": ["layer2.0.conv3"]}, "factor: there is no layer or block 'layer2.0.conv3'; did you mean 'layer2.0"),
        ({"whole": ["layr1"]}, "whole: there is no layer or block 'layr1'; did you mean 'layer1'"),
        ({"start": "layer1.2"}, "rho: .*'layer1.2'; did you mean 'layer1"),
        ({"start": "nowhere at all"}, "rho: .*'nowhere at all'; there are .*layer1.0.conv1, "),
    ],
)
def test_an_unknown_name_is_refused_with_one_that_may_be_meant(names: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        look(resnet18(0.1), **names)


def test_a_network_that_begins_at_an_unknown_layer_is_told_which_attribute_says_so() -> None:
    net = resnet18(0.1)
    net.low_rank_from = "layer1.2"
    with pytest.raises(ModelError, match=r"the network's low_rank_from: there is no layer or block 'layer1.2'; did"):
        look(net)


# ---- what cannot be put into factors ----


class Doubled(nn.Conv2d):
    """Looks like a convolution, but computes something else."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


class Drawn(nn.Linear):
    """A linear layer with other first weights."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)


class Gained(nn.Linear):
    """A linear layer with one more parameter, which somebody may want to load."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.gain = nn.Parameter(torch.ones(()))


class Flipped(nn.Conv2d):
    """Computes otherwise, but not in its forward."""

    def _conv_forward(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(inputs, weight.flip(-1), bias)


def test_a_subclass_that_computes_what_its_base_does_is_put_into_factors() -> None:
    net = chain(nn.Linear(8, 8), Drawn(8, 8), nn.Linear(8, 8))
    found = looks_at_row(net)
    assert list(found.layers) == ["b", "c"]
    runs(net, found, ROW)


def gained() -> nn.Module:
    return chain(nn.Linear(8, 8), Gained(8, 8), nn.Linear(8, 8))


def tied() -> nn.Module:
    net = chain(*eight())
    net.c.weight = net.b.weight  # type: ignore[union-attr]
    return net


def tied_to_embedding() -> nn.Module:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(8, 8)
            self.a, self.b, self.c = eight()
            self.head = nn.Linear(8, 2)
            self.b.weight = self.embed.weight

        def forward(self, rows: Tensor) -> Tensor:
            logits: Tensor = self.head(self.c(self.b(self.a(rows + self.embed(torch.zeros(1).long())))))
            return logits

    return Words()


def frozen() -> nn.Module:
    net = chain(*eight())
    net.get_parameter("b.weight").requires_grad_(False)
    return net


def subclassed(kind: type[nn.Conv2d] = Doubled) -> nn.Module:
    first, second, third = (layer(8, 8, 3, padding=1) for layer in (nn.Conv2d, kind, nn.Conv2d))
    return nn.Sequential(
        OrderedDict(
            image=nn.Unflatten(1, (8, 1, 1)), a=first, b=second, c=third, row=nn.Flatten(), head=nn.Linear(8, 2)
        )
    )


def normalised_by_a_hook() -> nn.Module:
    net = chain(*eight())
    weight_norm(net.b)
    return net


def normalised_by_parametrization() -> nn.Module:
    net = chain(*eight())
    parametrizations.weight_norm(net.b)
    return net


def pruned() -> nn.Module:
    net = chain(*eight())
    prune.l1_unstructured(net.b, "weight", 0.5)
    return net


def twice() -> nn.Module:
    layers = eight()
    return chain(layers[0], layers[1], layers[2], layers[1])


class Odd(nn.Module):
    """Three layers, of which `b` is used in an unusual way."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = eight()
        self.head = nn.Linear(8, 2)

    def middle(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.c(self.middle(self.a(inputs))))
        return logits


class NeverCalled(Odd):
    def middle(self, inputs: Tensor) -> Tensor:
        return inputs


class UsedAsFunction(Odd):
    def middle(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.b.weight, self.b.bias)


class Reads(Odd):
    def middle(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.b(inputs) + self.b.weight.mean()
        return outputs


class ReadsInTraining(Odd):
    def middle(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.b(inputs)
        return outputs + self.b.weight.mean() if self.training else outputs


class Asserts(Odd):
    def middle(self, inputs: Tensor) -> Tensor:
        assert isinstance(self.b, nn.Linear)
        outputs: Tensor = self.b(inputs)
        return outputs


class LooksUp(Odd):
    def middle(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = {nn.Linear: self.b}[type(self.b)](inputs)
        return outputs


class InAList(Odd):
    """Calls a layer through a list that is none of its modules."""

    def __init__(self) -> None:
        super().__init__()
        self.also = [self.b]

    def middle(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.also[0](inputs)
        return outputs


def hooked() -> nn.Module:
    net = chain(*eight())
    net.b.register_forward_hook(lambda layer, inputs, output: 2 * output)  # type: ignore[union-attr]
    return net


def hooked_with(register: str) -> nn.Module:
    net = chain(*eight())
    getattr(net.b, register)(lambda *given: None)
    return net


def patched() -> nn.Module:
    net = chain(*eight())
    net.b.forward = types.MethodType(lambda layer, rows: F.linear(rows, layer.weight).relu(), net.b)  # type: ignore
    return net


def shares_its_bias() -> nn.Module:
    net = chain(*eight())
    net.a.bias = net.b.bias  # type: ignore[union-attr]
    return net


LEFT_WHOLE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "tied": (tied, "it shares its weight with another layer"),
    "tied to an embedding": (tied_to_embedding, "it shares its weight with another layer"),
    "frozen": (frozen, "it is frozen"),
    "a class of its own": (subclassed, "it is a Doubled, which computes otherwise than the Conv2d"),
    "another convolution inside": (lambda: subclassed(Flipped), "it is a Flipped, "),
    "one more parameter": (gained, "it has tensors beside its weight and bias"),
    "weight norm": (normalised_by_a_hook, "its weight is computed from other parameters"),
    "parametrized weight norm": (normalised_by_parametrization, "its weight is computed from other parameters"),
    "pruned": (pruned, "its weight is computed from other parameters"),
    "under two names": (twice, "the network has it under several names"),
    "never called": (NeverCalled, "the network does not call it as a layer"),
    "used as a function": (UsedAsFunction, "the network does not call it as a layer"),
    "read": (Reads, READ),
    "read in training": (ReadsInTraining, READ),
    "asserted": (Asserts, ""),
    "looked up": (LooksUp, ""),
    "in a list": (InAList, ""),
    "with a hook": (hooked, ""),
    "with a hook before": (lambda: hooked_with("register_forward_pre_hook"), "it has hooks"),
    "with a hook on gradients": (lambda: hooked_with("register_full_backward_hook"), "it has hooks"),
    "with a hook before gradients": (lambda: hooked_with("register_full_backward_pre_hook"), "it has hooks"),
    "with a forward of its own": (patched, ""),
    "tied bias": (shares_its_bias, ""),
}


@pytest.mark.parametrize("case", LEFT_WHOLE)
@pytest.mark.parametrize("insisting", [False, True], ids=["", "named in factor"])
def test_a_layer_that_cannot_be_replaced_stays_whole(case: str, insisting: bool) -> None:
    build, reason = LEFT_WHOLE[case]
    net = build()
    found = looks_at_row(net, factor=["b"] if insisting else [])
    assert "b" not in found.layers
    assert found.whole["b"].startswith(reason)
    assert found.whole["b"]
    if case != "tied":
        assert "c" in found.layers
    runs(net, found, ROW)


@pytest.mark.parametrize("case", LEFT_WHOLE)
def test_what_cannot_be_replaced_may_be_named_in_whole(case: str) -> None:
    net = LEFT_WHOLE[case][0]()
    found = looks_at_row(net, whole=["b"])
    assert "b" not in found.layers
    runs(net, found, ROW)


def test_both_layers_that_share_a_weight_stay_whole() -> None:
    found = looks_at_row(tied())
    assert found.whole["b"] == found.whole["c"] == "it shares its weight with another layer"


def test_the_projection_of_attention_stays_whole() -> None:
    class Attends(Odd):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def middle(self, inputs: Tensor) -> Tensor:
            rows = self.b(inputs)[:, None]
            outputs: Tensor = self.attention(rows, rows, rows)[0][:, 0]
            return outputs

    net = Attends()
    found = looks_at_row(net, factor=["attention"])
    assert found.whole["attention.out_proj"] == "the network does not call it as a layer"
    assert list(found.layers) == ["b", "c"]
    runs(net, found, ROW)


def test_the_layers_of_a_transformer_are_found() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.Sequential(OrderedDict(a=nn.Linear(8, 8), encoder=nn.TransformerEncoder(layer, 2), head=nn.Linear(8, 2)))
    example = (torch.zeros(1, 5, 8),)
    found = survey(net, example, LOGITS)
    assert list(found.layers) == [f"encoder.layers.{n}.linear{m}" for n in (0, 1) for m in (1, 2)]
    runs(net, found, example)


def test_a_layer_that_is_called_twice_is_in_factors_once() -> None:
    class Again(Odd):
        def middle(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.b(self.b(inputs))
            return outputs

    net = Again()
    found = looks_at_row(net)
    assert list(found.layers) == ["b", "c"]
    runs(net, found, ROW)


# ---- what networks may do with their inputs ----


def test_a_network_may_flatten_its_inputs_with_view() -> None:
    class Views(Odd):
        def forward(self, inputs: Tensor) -> Tensor:
            logits: Tensor = self.head(self.c(self.b(self.a(inputs.view(-1, 8)))))
            return logits.view(*inputs.shape[:2], -1)

    assert list(survey(Views(), (torch.zeros(1, 5, 8),), LOGITS).layers) == ["b", "c"]


def test_a_network_may_change_its_inputs_in_place() -> None:
    class Shifts(Odd):
        def middle(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.b(inputs)
            return outputs

        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs.add_(1.0))

    example = (torch.zeros(1, 8),)
    assert list(survey(Shifts(), example, LOGITS).layers) == ["b", "c"]
    assert not example[0].any()


def test_whole_numbers_and_several_inputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 8)
            self.a, self.b, self.c = eight()
            self.head = nn.Linear(8, 2)

        def forward(self, tokens: Tensor, rows: Tensor) -> Tensor:
            logits: Tensor = self.head(self.c(self.b(self.a(rows) + self.embed(tokens).mean(1))))
            return logits

    example = (torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 8))
    assert list(survey(Two(), example, LOGITS).layers) == ["b", "c"]


def test_a_single_layer_is_the_first() -> None:
    assert survey(nn.Linear(8, 2), ROW, ("weight", "bias")).layers == {}


# ---- nothing is changed ----


def test_a_survey_changes_nothing() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 8), Reads())
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    modules, draws = [id(module) for module in net.modules()], torch.get_rng_state()
    for training in (True, False):
        net.train(training)
        survey(net, ROW, ())
        assert {module.training for module in net.modules()} == {training}
    assert torch.equal(torch.get_rng_state(), draws)
    assert [id(module) for module in net.modules()] == modules
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in net.modules())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_a_survey_takes_no_random_numbers_of_a_network_that_always_draws() -> None:
    class Noisy(Odd):
        def middle(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.b(F.dropout(inputs, 0.5))
            return outputs

    net, before = Noisy(), torch.get_rng_state()
    looks_at_row(net)
    assert torch.equal(torch.get_rng_state(), before)


def test_modules_that_their_author_put_into_use_stay_so() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)).train()
    net[1].eval()
    survey(net, ROW, ())
    assert [module.training for module in net] == [True, False, True]


def test_hooks_are_gone_even_if_the_network_fails() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(9, 8))
    with pytest.raises(RuntimeError):
        survey(net, ROW, ())
    assert not any(module._forward_pre_hooks for module in net.modules())
    assert net.training


# ---- ranks ----


def test_a_layer_that_factors_would_not_make_smaller_has_no_rank_there() -> None:
    """8 x 8: r (8 + 8) < 64 for r < 4; 40 x 8: r (40 + 8) < 320 for r < 6 2/3, and r is at most 8."""
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 40))
    found = survey(net, ROW, ())
    assert list(found.layers) == ["1", "2"]
    assert found.ranks(0.5) == {}  # ranks 4 and 8: as many scalars as before, or more
    assert found.ranks(0.375) == {"1": 3}
    assert found.ranks(0.15) == {"1": 1, "2": 6}
    assert found.ranks(1.0) == {}
    assert found.ranks(0.0001) == {"1": 1, "2": 1}


def test_a_ratio_close_to_one_gives_convolutions_a_rank() -> None:
    """3 x 3 with 8 channels: r (24 + 24) < 576 for r < 12, and r is at most 8."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    assert survey(net, IMAGE, ()).ranks(0.99) == {"1": 8}
