"""One of several classes: of an input, of each of its positions, or of each pixel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.core.errors import DataError
from potluck.core.goals.goal import Goal, Score, Sums, scalar
from potluck.core.inputs import tensors_of

INPUT_IDS = "input_ids"  # what networks of transformers call tokens
IGNORED = -100  # PyTorch's target for what does not count, such as padding
UNLABELLED = 255  # what many sets of images have for it


@dataclass(frozen=True)
class Classes(Goal):
    """The class of an input; any dimensions between batch and classes count as more examples."""

    gaps: bool = False  # some targets are -100 and do not count

    name: ClassVar[str] = "classes"
    softmax: ClassVar[bool] = True
    labelled: ClassVar[bool] = True
    means: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over all targets that count."""
        logits, wanted = outputs.flatten(0, -2), targets.flatten()
        if self.criterion is not None:
            if self.gaps:
                kept = wanted != IGNORED
                if not bool(kept.any()):
                    return logits.sum() * 0  # most losses are no number without a target
                logits, wanted = logits[kept], wanted[kept]
            return self.criterion(logits, wanted)
        if self.gaps:  # the mean over no target is not a number
            return F.cross_entropy(logits, wanted, reduction="sum") / (wanted != IGNORED).sum().clamp(min=1)
        return F.cross_entropy(logits, wanted)

    def sums(self, outputs: Tensor, inputs: Any, targets: Tensor) -> Sums:
        """Right answers and loss, over all targets that count."""
        count = int((targets != IGNORED).sum())
        right = (outputs.argmax(-1) == targets).sum()
        if self.criterion is None:
            loss = float(self.losses(outputs, targets).double().sum())
        else:
            loss = float(scalar(self.loss(outputs, targets))) * count if count else 0.0
        return {"accuracy": (float(right), count), "loss": (loss, count)}

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy of every target; 0 where it does not count."""
        return F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)

    def scored(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits, wanted = outputs.flatten(0, -2), targets.flatten()
        kept = wanted != IGNORED
        return logits[kept].softmax(-1), wanted[kept]

    def obstacle(self, outputs: Tensor, targets: Tensor, classes: int) -> str:
        if outputs.shape == targets.shape and classes <= 2:
            return (
                f"gives logits of shape {tuple(outputs.shape)}, classes last, and the labels have the same shape, but "
                "each label needs logits of its own; if they are 0 or 1 for each of several classes, number the "
                "classes, or let the task be 'multi-label'"
            )
        if outputs.shape[-1] != classes:
            return (
                f"has {outputs.shape[-1]} outputs, but classes are numbered from 0 and the last is {classes - 1}: it "
                f"needs {classes}"
            )
        if outputs.shape[:-1] != targets.shape:
            return (
                f"gives logits of shape {tuple(outputs.shape)}, classes last, but the labels have shape "
                f"{tuple(targets.shape)}: each label needs logits of its own"
            )
        return ""

    def targets(self, given: Tensor, what: str) -> Tensor:
        if given.is_floating_point() or given.is_complex() or given.dtype is torch.bool:
            raise DataError(
                f"{what}: labels are {str(given.dtype).removeprefix('torch.')}, not whole numbers; number the classes "
                "from 0, or say what they are: task 'regression', 'binary' or 'multi-label'"
            )
        lowest = int(given.min()) if given.numel() else 0
        if lowest < 0 and bool(((given < 0) & (given != IGNORED)).any()):
            raise DataError(
                f"{what}: label {int(given[given != IGNORED].min())} is negative; number the classes from 0 (-100 is "
                "for what does not count)"
            )
        return given.long()

    def classes_in(self, targets: Tensor) -> int:
        return int(targets.max()) + 1


@dataclass(frozen=True)
class Pixels(Classes):
    """The class of every pixel: logits come as (examples, classes, height, width), as PyTorch's losses take them."""

    name: ClassVar[str] = "pixels"
    target_per: ClassVar[str] = "pixel"

    def outputs(self, output: object) -> Tensor:
        found: Tensor = super().outputs(output)
        return found.movedim(1, -1) if found.dim() > 2 else found

    def obstacle(self, outputs: Tensor, targets: Tensor, classes: int) -> str:
        if outputs.shape == (*targets.shape, classes):
            return ""
        given = outputs.movedim(-1, 1) if outputs.dim() > 2 else outputs  # as the network gives them
        unlabelled = f"; if {UNLABELLED} stands for pixels without a label, make it {IGNORED}"
        return (
            f"gives logits of shape {tuple(given.shape)}, but labels of shape {tuple(targets.shape)} from 0 to "
            f"{classes - 1} need {(len(targets), classes, *targets.shape[1:])}, classes second"
            f"{unlabelled if classes - 1 == UNLABELLED else ''}"
        )


@dataclass(frozen=True)
class NextToken(Classes):
    """The token after a sequence, or after each of its positions."""

    name: ClassVar[str] = "next-token"

    def derived(self, means: Mapping[str, float]) -> Score:
        return {} if self.criterion or "loss" not in means else {"perplexity": perplexity(means["loss"])}


@dataclass(frozen=True)
class MaskedTokens(Classes):
    """The tokens that are hidden in a sequence. Targets are all tokens, or -100 for those that are not hidden."""

    name: ClassVar[str] = "masked-tokens"
    target_per: ClassVar[str] = "position"
    means: ClassVar[tuple[str, ...]] = ("accuracy", "loss", "masked_accuracy", "masked_loss", "paper_perplexity")

    def sums(self, outputs: Tensor, inputs: Any, targets: Tensor) -> Sums:
        """The same also over hidden tokens alone, if the inputs show which these are."""
        sums = super().sums(outputs, inputs, targets)
        losses = self.losses(outputs, targets) if self.criterion is None else None  # the user's make no perplexities
        if (tokens := tokens_in(inputs, targets)) is not None:
            hidden = (tokens != targets) & (targets != IGNORED)
            right, count = outputs.argmax(-1) == targets, int(hidden.sum())
            sums["masked_accuracy"] = float(right[hidden].sum()), count
            if losses is not None:
                sums["masked_loss"] = float(losses[hidden].double().sum()), count
        if losses is not None:
            sums["paper_perplexity"] = heterofl_perplexity(losses), len(losses)
        return sums

    def derived(self, means: Mapping[str, float]) -> Score:
        if self.criterion:
            return {}
        kinds = {"loss": "perplexity", "masked_loss": "masked_perplexity"}
        return {kinds[name]: perplexity(mean) for name, mean in means.items() if name in kinds}


def tokens_in(inputs: Any, targets: Tensor) -> Tensor | None:
    """The tokens that a network is shown: its input_ids, or else the only whole numbers shaped like the targets."""
    named = isinstance(inputs, Mapping) and INPUT_IDS in inputs
    found = [
        tensor
        for tensor in tensors_of(inputs[INPUT_IDS] if named else inputs)
        if tensor.shape == targets.shape and not tensor.is_floating_point() and tensor.dtype is not torch.bool
    ]
    return found[0] if len(found) == 1 else None


def heterofl_perplexity(losses: Tensor) -> float:
    """Σ over windows of exp(mean cross-entropy of the window): HeteroFL averages exponentials, over all positions."""
    return float(losses.double().mean(1).exp().sum())


def perplexity(loss: float) -> float:
    """exp(mean cross-entropy), which is infinite where a number cannot hold it."""
    return math.exp(loss) if loss < 700 else math.inf
