"""What a network in factors is trained for, against a slow version with loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from potluck.core.goals.classes import Classes
from potluck.core.names import inside, under
from potluck.core.random import seeded, stream
from potluck.core.tensors import copied
from potluck.core.types import Tensors
from potluck.parts.labels import Masking
from potluck.parts.lowrank.layers import Unrolled, replace_layers
from potluck.parts.lowrank.loss import TEACHER, HybridLoss, answers, softened_divergence

CLASSES = Classes()
MASK = torch.tensor([True, False, True, True])


class Small(nn.Module):
    """A layer whole, one in factors, one with dropout and batch norm in front, and four logits."""

    def __init__(self, dropout: float = 0.0, norm: bool = True) -> None:
        super().__init__()
        self.body = nn.Linear(3, 6)
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()
        self.drop = nn.Dropout(dropout)
        self.mid = nn.Linear(6, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.mid(self.drop(self.norm(self.body(inputs)))))
        return logits


def small(dropout: float = 0.0, norm: bool = True) -> nn.Module:
    net = replace_layers(Small(dropout, norm), {"mid": 2}).double()
    for name, parameter in net.named_parameters():
        parameter.data = torch.randn(parameter.shape, dtype=torch.float64, generator=stream(0, name))
    return net.train()


LAYERS = (("mid", Unrolled.of(nn.Linear(6, 6))),)
BATCH = (
    torch.randn(5, 3, dtype=torch.float64, generator=stream(0, "inputs")),
    torch.tensor([0, 2, 3, 2, 0]),
)


def teacher(net: nn.Module, shift: float = 0.3) -> Tensors:
    """Other weights under the names of the network's state."""
    shifted = {
        name: tensor + shift if tensor.is_floating_point() else tensor.clone()
        for name, tensor in net.state_dict().items()
    }
    return under(TEACHER, shifted)


def shares(logits: list[float]) -> list[float]:
    total = sum(math.exp(each) for each in logits)
    return [math.exp(each) / total for each in logits]


def slow_cross_entropy(logits: Tensor, targets: Tensor, masking: Masking) -> float:
    losses = []
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        if masking == "zero":
            row = [value if has else 0.0 for value, has in zip(row, MASK.tolist(), strict=True)]
        place = target
        if masking == "-inf":
            place = MASK[:target].sum().item()
            row = [value for value, has in zip(row, MASK.tolist(), strict=True) if has]
        losses.append(-math.log(shares(row)[int(place)]))
    return sum(losses) / len(losses)


def slow_divergence(student: Tensor, teacher: Tensor, temperature: float) -> float:
    terms = []
    for own, other in zip(student.tolist(), teacher.tolist(), strict=True):
        q, p = (shares([value / temperature for value in row]) for row in (own, other))
        terms.append(sum(b * math.log(b / a) for a, b in zip(q, p, strict=True)))
    return temperature**2 * sum(terms) / len(terms)


def slow_decay(net: nn.Module) -> float:
    product = net.get_parameter("mid.second.weight") @ net.get_parameter("mid.first.weight")
    return float(sum(each**2 for each in product.detach().flatten().tolist())) / 2


@pytest.mark.parametrize("masking", ["zero", "-inf", "off"])
def test_masking_is_of_the_classes_a_client_lacks(masking: Masking) -> None:
    net = small()
    expected = slow_cross_entropy(net(BATCH[0]), BATCH[1], masking)
    extra = {} if masking == "off" else {"mask": MASK}
    found = HybridLoss(CLASSES, None if masking == "off" else masking, 0.0, LAYERS, 0.0, 1.0)(net, BATCH, extra)
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("masking", ["zero", "-inf", "off"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_all_three_terms(masking: Masking, temperature: float) -> None:
    net = small()
    extra = {"mask": MASK, **teacher(net)}
    other = small()
    other.load_state_dict(inside(TEACHER, extra))
    expected = (
        slow_cross_entropy(net(BATCH[0]), BATCH[1], masking)
        + 0.01 * slow_decay(net)
        + 0.7 * slow_divergence(net(BATCH[0]), other.eval()(BATCH[0]), temperature)
    )
    found = HybridLoss(CLASSES, None if masking == "off" else masking, 0.01, LAYERS, 0.7, temperature)(
        net, BATCH, extra
    )
    assert found.item() == pytest.approx(expected, rel=1e-12)


def test_decay_is_on_the_product_of_the_factors() -> None:
    net = small(norm=False)
    plain = HybridLoss(CLASSES, None, 0.0, LAYERS, 0.0, 1.0)(net, BATCH, {})
    decayed = HybridLoss(CLASSES, None, 0.1, LAYERS, 0.0, 1.0)(net, BATCH, {})
    assert (decayed - plain).item() == pytest.approx(0.1 * slow_decay(net), rel=1e-9)
    (gradient,) = torch.autograd.grad(decayed - plain, net.get_parameter("mid.second.weight"))
    left, right = net.get_parameter("mid.second.weight"), net.get_parameter("mid.first.weight")
    torch.testing.assert_close(gradient, 0.1 * left @ right @ right.T)


def test_a_network_without_factors_has_no_decay() -> None:
    net = Small().double()
    found = HybridLoss(CLASSES, None, 0.5, (), 0.0, 1.0)(net, BATCH, {})
    assert found.item() == pytest.approx(slow_cross_entropy(net(BATCH[0]), BATCH[1], "off"))


def test_the_teacher_gets_no_gradient_and_the_student_does() -> None:
    net = small()
    extra = {name: tensor.requires_grad_(tensor.is_floating_point()) for name, tensor in teacher(net).items()}
    HybridLoss(CLASSES, None, 0.0, LAYERS, 1.0, 1.0)(net, BATCH, extra).backward()
    assert all(tensor.grad is None for tensor in extra.values())
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_the_gradient_is_the_difference_of_the_probabilities() -> None:
    """d/dz T² KL(p ‖ softmax(z / T)) = T (softmax(z / T) - p), of a mean over two examples half of that."""
    student = torch.tensor([[1.0, 0.0], [0.5, -0.5]], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    softened_divergence(student, teacher, 2.0).backward()
    expected = [
        [(a - b) * 2.0 / 2 for a, b in zip(shares([v / 2 for v in own]), shares([v / 2 for v in other]), strict=True)]
        for own, other in zip(student.tolist(), teacher.tolist(), strict=True)
    ]
    torch.testing.assert_close(student.grad, torch.tensor(expected, dtype=torch.float64))


def test_every_position_of_a_text_is_an_example() -> None:
    student, teacher = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    torch.testing.assert_close(
        softened_divergence(student, teacher, 2.0),
        softened_divergence(student.reshape(6, 5), teacher.reshape(6, 5), 2.0),
    )


def test_logits_far_apart_give_a_finite_loss() -> None:
    student = torch.tensor([[0.0, 200.0]], requires_grad=True)
    found = softened_divergence(student, torch.tensor([[200.0, 0.0]]), 1.0)
    found.backward()
    assert found.item() == pytest.approx(200.0)
    assert student.grad is not None
    assert student.grad.tolist()[0] == pytest.approx([-1.0, 1.0])


def test_the_teacher_has_no_dropout() -> None:
    net = small(dropout=0.5)
    weights = inside(TEACHER, teacher(net))
    with seeded(0, "one"):
        one, drawn = answers(net, weights, BATCH[0]), torch.rand(1)
    with seeded(0, "one"):
        expected = torch.rand(1)
    with seeded(0, "two"):
        two = answers(net, weights, BATCH[0])
    assert torch.equal(one, two)
    assert torch.equal(drawn, expected)  # it takes no random numbers either
    assert net.training
    assert all(module.training for module in net.modules())


def test_the_students_dropout_is_the_same_with_and_without_a_teacher() -> None:
    net = small(dropout=0.5)
    found = []
    for weight, extra in ((0.0, {}), (1.0, teacher(net, 0.0))):
        with seeded(0, "dropout"):
            loss = HybridLoss(CLASSES, None, 0.0, (), weight, 1.0)(net, BATCH, extra)
            found.append((loss, torch.rand(1)))
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][0] < found[1][0]


def test_the_network_stays_in_training_even_if_the_teacher_fails() -> None:
    net = small()
    with pytest.raises(RuntimeError):
        answers(net, {"mid.first.weight": torch.zeros(3, 7, dtype=torch.float64)}, BATCH[0])
    assert all(module.training for module in net.modules())


def test_nothing_is_changed_but_the_students_own_statistics() -> None:
    net = small()
    extra = {"mask": MASK.clone(), **teacher(net)}
    before = {name: tensor.clone() for name, tensor in extra.items()}
    parameters = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    held = dict(extra)
    HybridLoss(CLASSES, "zero", 0.1, LAYERS, 1.0, 2.0)(net, BATCH, extra).backward()
    assert extra.keys() == held.keys()
    assert all(extra[name] is held[name] and torch.equal(extra[name], before[name]) for name in extra)
    assert all(torch.equal(parameters[name], parameter) for name, parameter in net.named_parameters())
    assert int(net.get_buffer("norm.num_batches_tracked")) == 1  # the student's pass alone


def test_a_teacher_of_its_own_weights_costs_nothing_where_training_is_use() -> None:
    net = small(norm=False)
    extra = teacher(net, 0.0)
    plain = HybridLoss(CLASSES, None, 0.0, (), 0.0, 1.0)(net, BATCH, {})
    torch.testing.assert_close(HybridLoss(CLASSES, None, 0.0, (), 5.0, 1.0)(net, BATCH, extra), plain)


def test_a_teacher_of_a_network_whose_weights_are_tied() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.mid = nn.Embedding(6, 4), nn.Linear(4, 4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.head(self.mid(self.embed(tokens)))
            return logits

    net, other = Words(), Words()
    extra = under(TEACHER, copied(other.state_dict()))
    tokens = torch.tensor([[0, 1, 2], [3, 4, 5]])
    found = HybridLoss(CLASSES, None, 0.0, (), 1.0, 1.0)(net, (tokens, tokens), extra)
    expected = HybridLoss(CLASSES, None, 0.0, (), 0.0, 1.0)(net, (tokens, tokens), {})
    torch.testing.assert_close(found, expected + softened_divergence(net(tokens), other(tokens), 1.0))
