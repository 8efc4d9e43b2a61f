"""How good a network is on examples nobody trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from potluck.core.blame import TOO_FEW_ROWS, UNKNOWN, foreign_failure
from potluck.core.data import Examples
from potluck.core.errors import DataError, PotluckError
from potluck.core.goals.blamed import blamed_on
from potluck.core.goals.goal import Score, Sums
from potluck.core.inputs import Inputs, call, mapped, repeated, tensors_of
from potluck.core.measures import attempt
from potluck.core.memo import Memo
from potluck.core.names import inside, under
from potluck.core.observe import Given, observe
from potluck.core.recipe import Recipe
from potluck.core.types import Level, Task, Tensors
from potluck.core.ways.way import PLAIN, Way

MOST_EXAMPLES, MOST_NUMBERS, MOST_LOGITS = 500, 1 << 21, 1 << 22  # of a batch that is scored, its inputs, its outputs
MOST_BETWEEN = 1 << 21  # numbers of a layer's output for a batch: more do not fit the caches, and take twice the time
LOCAL = "local_accuracy"
SCORING = "as a model is scored"


@dataclass(frozen=True)
class LocalTest:
    """Every test example as one client's: which classes that client has, and whether there is such a client."""

    classes: Tensor  # (examples, classes), true where the example's client has the class in its training data
    owned: Tensor  # (examples,)


def tally_as_trained(
    net: nn.Module,
    examples: Examples,
    chosen: Tensor,
    recipe: Recipe,
    level: Level,
    memo: Memo,
    local: LocalTest | None = None,
) -> Tensors:
    """What some of the examples add to the score of a level's network, laid out as for the training of this level."""
    task, way = recipe.task, Way.called(recipe.ways.get(level.name, PLAIN))
    between = memo.latest((widest, level.name), (), lambda: widest(net, task))
    with way.arranged(net):
        return tally_over(net, examples, chosen, task, local, batch_size(task, between), way)


@torch.no_grad()
def tally_over(
    net: nn.Module,
    examples: Examples,
    chosen: Tensor,
    task: Task,
    local: LocalTest | None,
    batch_size: int,
    way: Way = Way(),  # noqa: B008
) -> Tensors:
    """What some of the examples add to the score of a network."""
    net.eval()
    total: Tensors = {}
    device = device_of(net)
    for index in torch.split(chosen, batch_size):
        inputs, targets = way.batch(mapped(lambda each: each.to(device), examples.take(index)))
        outputs = outputs_of(net, inputs, task)
        with blamed_on(task.goal, SCORING, with_loss=True):
            sums = task.goal.sums(outputs, inputs, targets)
            scored = task.goal.scored(outputs, targets) if any(not each.raw for each in task.measures.values()) else ()
        if local is not None:
            has, owned = local.classes[index].to(device), local.owned[index].to(device)
            sums[LOCAL] = local_sums(outputs, targets, has, owned)
        found = as_tensors(sums)
        for name, measure in task.measures.items():
            shown = (outputs, targets) if measure.raw else scored
            found |= under(name, attempt(name, measure.of, *shown))
        total = added(total, found, task)
    return total


def outputs_of(net: nn.Module, inputs: Inputs, task: Task) -> Any:
    """What a network says of test examples; those on which it fails are told from faults of ours."""
    try:
        return task.goal.outputs(call(net, inputs))
    except PotluckError:
        raise
    except Exception as error:
        if UNKNOWN in str(error):
            raise DataError(f"test: {TOO_FEW_ROWS}") from error
        if why := foreign_failure(error):
            raise DataError(f"test: the network fails: {why}") from error
        raise


def batch_size(task: Task, between: int = 1) -> int:
    """How many examples are scored at a time, if a layer puts out at most `between` numbers for each."""
    numbers, answers = (max(1, sum(tensor.numel() for tensor in tensors_of(tree))) for tree in task.example)
    bounds = MOST_NUMBERS // numbers, MOST_LOGITS // (max(1, task.classes) * answers), MOST_BETWEEN // between
    return max(1, min(MOST_EXAMPLES, *bounds))


def widest(net: nn.Module, task: Task) -> int:
    """The most numbers that a layer of a network puts out for an example; 1 on a device that has memory of its own."""
    layers = {name: module for name, module in net.named_modules() if not any(module.children())}
    found, device = [1], device_of(net)

    def note(name: str, layer: nn.Module, given: Given, output: Any) -> None:
        found.extend(tensor.numel() // 2 for tensor in tensors_of(output))

    if layers and device.type == "cpu":
        observe(net, repeated(task.example[0], 2), layers, after=note)
    return max(found)


def device_of(net: nn.Module) -> torch.device:
    """Where a network is."""
    return next((tensor.device for tensor in (*net.parameters(), *net.buffers())), torch.device("cpu"))


def as_tensors(sums: Sums) -> Tensors:
    """Sums and counts as named tensors, for the wire."""
    return {name: torch.tensor([value, count], dtype=torch.float64) for name, (value, count) in sums.items()}


def added(one: Tensors, other: Tensors, task: Task) -> Tensors:
    """What two pieces add up to."""
    if not one or not other:
        return one or other
    total: Tensors = {}
    for name, pair in (*one.items(), *other.items()):  # a goal may find in some batches alone what it measures
        if is_sum(name, task):
            total[name] = total[name] + pair if name in total else pair
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
    with blamed_on(task.goal, SCORING, with_loss=True):
        return {**means, **task.goal.derived(means), **further}


def local_sums(logits: Tensor, targets: Tensor, classes: Tensor, owned: Tensor) -> tuple[float, int]:
    """Right answers when each client only chooses among its classes: absent ones have logit 0 (HeteroFL, Local)."""
    right = logits.masked_fill(~classes, 0.0).argmax(-1) == targets
    return float(right[owned].sum()), int(owned.sum())
