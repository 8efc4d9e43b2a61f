"""How good a network is on examples nobody trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from potluck.core.blame import TOO_FEW_ROWS, UNKNOWN
from potluck.core.data import Examples
from potluck.core.errors import DataError
from potluck.core.goals.goal import Score, Sums
from potluck.core.inputs import Inputs, call, mapped, tensors_of
from potluck.core.measures import attempt
from potluck.core.names import inside, under
from potluck.core.types import Task, Tensors

MOST_EXAMPLES, MOST_NUMBERS, MOST_LOGITS = 500, 1 << 21, 1 << 22  # of a batch that is scored, its inputs, its outputs
LOCAL = "local_accuracy"


@dataclass(frozen=True)
class LocalTest:
    """Every test example as one client's: which classes that client has, and whether there is such a client."""

    classes: Tensor  # (examples, classes), true where the example's client has the class in its training data
    owned: Tensor  # (examples,)


@torch.no_grad()
def tally_over(
    net: nn.Module, examples: Examples, chosen: Tensor, task: Task, local: LocalTest | None, batch_size: int
) -> Tensors:
    """What some of the examples add to the score of a network."""
    net.eval()
    total: Tensors = {}
    device = next((tensor.device for tensor in (*net.parameters(), *net.buffers())), torch.device("cpu"))
    for index in torch.split(chosen, batch_size):
        inputs, targets = mapped(lambda each: each.to(device), examples.take(index))
        outputs = outputs_of(net, inputs, task)
        sums = task.goal.sums(outputs, inputs, targets)
        if local is not None:
            has, owned = local.classes[index].to(device), local.owned[index].to(device)
            sums[LOCAL] = local_sums(outputs, targets, has, owned)
        found = as_tensors(sums)
        for name, measure in task.measures.items():
            shown = (outputs, targets) if measure.raw else task.goal.scored(outputs, targets)
            found |= under(name, attempt(name, measure.of, *shown))
        total = added(total, found, task)
    return total


def outputs_of(net: nn.Module, inputs: Inputs, task: Task) -> Any:
    """What a network says of test examples; numbers that it has no row for are a mistake in the data."""
    try:
        return task.goal.outputs(call(net, inputs))
    except IndexError as error:
        if UNKNOWN in str(error):
            raise DataError(f"test: {TOO_FEW_ROWS}") from error
        raise


def batch_size(task: Task) -> int:
    """How many examples are scored at a time."""
    numbers, answers = (max(1, sum(tensor.numel() for tensor in tensors_of(tree))) for tree in task.example)
    return max(1, min(MOST_EXAMPLES, MOST_NUMBERS // numbers, MOST_LOGITS // (max(1, task.classes) * answers)))


def as_tensors(sums: Sums) -> Tensors:
    """Sums and counts as named tensors, for the wire."""
    return {name: torch.tensor([value, count], dtype=torch.float64) for name, (value, count) in sums.items()}


def added(one: Tensors, other: Tensors, task: Task) -> Tensors:
    """What two pieces add up to."""
    if not one or not other:
        return one or other
    total = {name: one[name] + pair if name in one else pair for name, pair in other.items() if is_sum(name, task)}
    for name, measure in task.measures.items():
        total |= under(name, attempt(name, measure.added, inside(name, one), inside(name, other)))
    return total


def is_sum(name: str, task: Task) -> bool:
    """Whether a tensor of a tally has a sum and a count, and is not of a measure's."""
    return name in task.goal.means or name == LOCAL


def score_of(total: Tensors, task: Task) -> Score:
    """The score that all pieces together give: the goal's means, what follows from them, and further measures."""
    sums = {name: pair for name, pair in total.items() if is_sum(name, task)}
    means = {name: float(pair[0] / pair[1]) for name, pair in sums.items() if pair[1]}
    further = {
        name: attempt(name, measure.value, inside(name, total)) for name, measure in task.measures.items() if total
    }
    return {**means, **task.goal.derived(means), **further}


def local_sums(logits: Tensor, targets: Tensor, classes: Tensor, owned: Tensor) -> tuple[float, int]:
    """Right answers when each client only chooses among its classes: absent ones have logit 0 (HeteroFL, Local)."""
    right = logits.masked_fill(~classes, 0.0).argmax(-1) == targets
    return float(right[owned].sum()), int(owned.sum())
