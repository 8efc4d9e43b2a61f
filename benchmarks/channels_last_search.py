"""Which convolutions PyTorch gets wrong on a CPU if channels come last: a search over small shapes.

Some write out of bounds, which may end the process much later. So shapes run in processes of their own, a few in each,
and one by one where that process ends by a signal. A shape is wrong if its output or a gradient differs from that in
float64 and the plain layout, and it writes out of bounds if memory beside its tensors changes.

It ends with exit code 1 if the rule in core/ways/operations.py lets a bad shape pass, or if what takes the place of a
bad shape is bad itself. `--isa AVX2` has PyTorch use the kernels of such a processor; `--every 10` takes every tenth
shape. All of them take an hour.

python benchmarks/channels_last_search.py [--isa AVX2] [--every N]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.core.ways.operations import conv2d, is_unsafe
from potluck.core.ways.way import with_channels_last

CHANNELS = (*range(1, 10), 12, 15, 16, 17, 24)
OUTPUTS = (1, 2, 3, 4, 6, 8, 9, 16, 17)
IMAGES = ((8, 8), (9, 7), (32, 32))
KERNELS = ((1, 1), (2, 2), (3, 3), (5, 5), (1, 3))
STRIDES = ((1, 1), (2, 2), (3, 3), (1, 2))
BATCH, TOGETHER, TIMES = 3, 25, 3  # examples; shapes in a process; how often each is computed
FAR = 1e-3  # relative to the largest value: rounding stays far below
PATTERN = 0x5A5A5A5A
PATIENCE = 5  # seconds for a process
FINE = "fine"
RESULTS = ("output", "gradient of images", "gradient of weight")


@dataclass(frozen=True)
class Shape:
    """A convolution, and the images that it is given."""

    inputs: int
    outputs: int
    image: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: int
    groups: int
    turned: bool  # a transposed convolution

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """The shape of its weight."""
        one, other = (self.inputs, self.outputs) if self.turned else (self.outputs, self.inputs)
        return one, other // self.groups, *self.kernel

    @property
    def family(self) -> str:
        """All but the numbers of channels and pixels."""
        kind = "transposed " if self.turned else ""
        grouped = "" if self.groups == 1 else ", depthwise" if self.groups == self.inputs else ", grouped"
        return f"{kind}{self.kernel} stride {self.stride} padding {self.padding}{grouped}"

    def computed(self, images: Tensor, weight: Tensor, guarded: bool = False) -> Tensor:
        """The convolution itself, or what Potluck puts in its place."""
        if self.turned:
            return F.conv_transpose2d(images, weight, None, self.stride, self.padding, 0, self.groups)
        return (conv2d if guarded else F.conv2d)(images, weight, None, self.stride, self.padding, 1, self.groups)


def shapes() -> Iterator[Shape]:
    """All that are tried."""
    for turned, kernel, stride in product((False, True), KERNELS, STRIDES):
        for padding in sorted({0, 1, max(kernel) // 2}):
            if turned and 2 * padding > min(kernel):
                continue
            for inputs, outputs, image in product(CHANNELS, OUTPUTS, IMAGES):
                for groups in {1, 2, inputs}:
                    if inputs % groups == 0 and outputs % groups == 0:
                        yield Shape(inputs, outputs, image, kernel, stride, padding, groups, turned)


def verdict(shape: Shape, guarded: bool) -> str:
    """What is wrong with a shape."""
    torch.manual_seed(0)
    images, weight = torch.randn(BATCH, shape.inputs, *shape.image), torch.randn(shape.weight)
    right = results(shape, images.double(), weight.double(), torch.contiguous_format, guarded=False)
    for _ in range(TIMES):
        beside = neighbours([tensor.numel() for tensor in right])
        found = results(shape, images, weight, torch.channels_last, guarded)
        if not all(bool((each == PATTERN).all()) for each in beside):
            return "writes out of bounds"
        for what, ours, theirs in zip(
            ("output", "gradient of images", "gradient of weight"), found, right, strict=True
        ):
            if not float((ours - theirs).abs().max()) <= FAR * float(theirs.abs().max()):
                return f"wrong {what}"
    return FINE


def results(
    shape: Shape, images: Tensor, weight: Tensor, layout: torch.memory_format, guarded: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Output and both gradients of a convolution in a layout."""
    last = layout == torch.channels_last
    images = (with_channels_last(images) if last else images).requires_grad_()
    weight = weight.contiguous(memory_format=layout).requires_grad_()
    output = shape.computed(images, weight, guarded)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output).contiguous(memory_format=layout)
    gradients = torch.autograd.grad(output, (images, weight), weights)
    return output.detach(), *gradients


def neighbours(sizes: Sequence[int]) -> list[Tensor]:
    """Memory with room between its pieces for tensors of these sizes."""
    rows = [[torch.full((size,), PATTERN, dtype=torch.int32) for _ in range(9)] for size in sizes]
    return [piece for row in rows for piece in row[::2]]


def alone(some: Sequence[Shape], guarded: bool) -> list[str] | None:
    """The verdicts on some shapes by a process of their own; nothing if it did not survive."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a process that breaks down says so at length
        torch.set_num_threads(1)
        signal.alarm(PATIENCE)  # broken memory may also make it wait for ever
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(writer, "w") as pipe:
            json.dump([verdict(shape, guarded) for shape in some], pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(answer) if status == 0 else None


def judged(some: Sequence[Shape], guarded: bool = False) -> dict[Shape, str]:
    """What is wrong with each shape; those of a process that breaks down are tried one by one."""
    found: dict[Shape, str] = {}
    for start in range(0, len(some), TOGETHER):
        few = some[start : start + TOGETHER]
        verdicts = alone(few, guarded)
        if verdicts is None:
            each = [alone([shape], guarded) for shape in few]
            verdicts = [one[0] if one else "ends the process" for one in each]
            if all(one == FINE for one in verdicts):
                print(f"a process of these shapes broke down, but none does so alone: {[asdict(one) for one in few]}")
        found |= dict(zip(few, verdicts, strict=True))
    return found


def tell(title: str, bad: dict[Shape, str]) -> None:
    """The bad shapes by family."""
    print(f"{title}: {len(bad)}")
    for family in dict.fromkeys(shape.family for shape in bad):
        own = {shape: what for shape, what in bad.items() if shape.family == family}
        channels = sorted({shape.inputs for shape in own})
        print(f"  {family}: {len(own)} shapes, {channels} input channels; {dict(Counter(own.values()))}")


def is_covered(shape: Shape) -> bool:
    """Whether Potluck never runs such a convolution."""
    return not shape.turned and is_unsafe(shape.weight, shape.stride)


def search(every: int) -> int:
    """Try all shapes, then what takes the place of those that the rule forbids."""
    found = judged(list(shapes())[::every])
    bad = {shape: what for shape, what in found.items() if what != FINE}
    print(f"{len(found)} shapes tried, PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    tell("bad", bad)
    missed = {shape: what for shape, what in bad.items() if not is_covered(shape)}
    tell("bad, and not covered by the rule", missed)
    instead = judged([shape for shape in found if is_covered(shape)], guarded=True)
    still = {shape: what for shape, what in instead.items() if what != FINE}
    tell(f"bad of {len(instead)} that the rule replaces, when replaced", still)
    return 1 if missed or still else 0


def main() -> int:
    """As told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", help="kernels of another processor: AVX2, SSE41 ...")
    parser.add_argument("--every", type=int, default=1)
    told = parser.parse_args()
    if told.isa and os.environ.get("ONEDNN_MAX_CPU_ISA") != told.isa:  # both are read as PyTorch is imported
        aten = {"AVX2": "avx2"}.get(told.isa, "default")
        os.environ |= {"ONEDNN_MAX_CPU_ISA": told.isa, "ATEN_CPU_CAPABILITY": aten}
        os.execv(sys.executable, [sys.executable, *sys.argv])
    return search(told.every)


if __name__ == "__main__":
    sys.exit(main())
