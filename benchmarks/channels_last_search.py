"""Which convolutions PyTorch gets wrong on a CPU if channels come last: a search over small shapes.

Some write out of bounds, which may end the process much later. So shapes run in other processes, whose memory the C
library checks: one that has written past a block ends as the block is freed. Shapes that the rule in
core/ways/operations.py forbids have a process each. Others share one; where it ends, the shape at hand runs again,
alone, and if it is fine alone, so do all that ran before it. A shape is wrong if its output or a gradient differs from
that in float64 and the plain layout.

Kernels of one pixel are tried with all numbers of channels and images, others with every seventh. The exit code is 1 if
the rule lets a bad shape pass, or if what takes the place of a bad shape is bad itself.
`--isa AVX2` has PyTorch use the kernels of such a processor, `--isa SSE41` those of the plainest; `--every 10` takes
a tenth of the shapes. All of them take about ten minutes on one core.

python benchmarks/channels_last_search.py [--isa AVX2] [--every N]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.core.ways.operations import convolution, is_unsafe

CHANNELS = (*range(1, 10), 12, 16, 17)
OUTPUTS = (1, 2, 3, 4, 5, 8, 9, 16, 17)
BATCHES = ((1, 8, 8), (3, 8, 8), (3, 9, 7), (16, 5, 5), (16, 12, 12), (3, 32, 32))  # how many images; their size
KERNELS = {1: ((1,), (3,)), 2: ((1, 1), (2, 2), (3, 3), (5, 5), (1, 3)), 3: ((1, 1, 1), (3, 3, 3))}
STRIDES = {1: ((1,), (2,)), 2: ((1, 1), (2, 2), (3, 3), (1, 2)), 3: ((1, 1, 1), (2, 2, 2))}
THINNED = 7  # of the numbers of channels and images, every seventh for kernels of more than a pixel
TOGETHER, PATIENCE = 500, 20  # shapes in a process; seconds for each
TIMES = 5  # how often one is tried alone, as what is hit depends on where its memory lies
FAR = 1e-3  # relative to the largest value: rounding stays far below
FINE, ENDS = "fine", "ends the process"
CHECKS = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}


@dataclass(frozen=True)
class Shape:
    """A convolution, and the images that it is given."""

    inputs: int
    outputs: int
    batch: int
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: int
    dilation: int
    groups: int
    turned: bool  # a transposed convolution

    @property
    def weight(self) -> tuple[int, ...]:
        """The shape of its weight."""
        one, other = (self.inputs, self.outputs) if self.turned else (self.outputs, self.inputs)
        return one, other // self.groups, *self.kernel

    @property
    def family(self) -> str:
        """All but the numbers of channels and pixels."""
        kind = "transposed " if self.turned else ""
        grouped = "" if self.groups == 1 else ", depthwise" if self.groups == self.inputs else ", grouped"
        return f"{kind}{self.kernel} stride {self.stride} padding {self.padding} dilation {self.dilation}{grouped}"

    @property
    def exists(self) -> bool:
        """Whether its channels can be split like this, and its images are as large as its kernel."""
        reach = self.dilation * (max(self.kernel) - 1) + 1
        return gcd(self.inputs, self.outputs) % self.groups == 0 and min(self.image) + 2 * self.padding >= reach

    @property
    def is_covered(self) -> bool:
        """Whether Potluck never runs such a convolution."""
        return not self.turned and is_unsafe(self.weight, self.stride)

    def computed(self, images: Tensor, weight: Tensor, guarded: bool = False) -> Tensor:
        """The convolution itself, or what Potluck puts in its place."""
        if self.turned:
            turned = getattr(F, f"conv_transpose{len(self.image)}d")
            return turned(images, weight, None, self.stride, self.padding, 0, self.groups, self.dilation)
        plain = getattr(F, f"conv{len(self.image)}d")
        plain = partial(convolution, plain) if guarded else plain
        return plain(images, weight, None, self.stride, self.padding, self.dilation, self.groups)


def shapes() -> Iterator[Shape]:
    """All that are tried."""
    numbers = list(product(CHANNELS, OUTPUTS, BATCHES))
    start = 0
    for dims, turned in product(KERNELS, (False, True)):
        for kernel, stride, padding, dilation in product(KERNELS[dims], STRIDES[dims], (0, 1, 2), (1, 2)):
            one_pixel = max(kernel) == 1
            if padding > max(1, max(kernel) // 2) or (turned and 2 * padding > min(kernel)) or dilation * one_pixel > 1:
                continue
            start += 1  # so that families do not leave out the same numbers
            step = 1 if one_pixel and dims == 2 else THINNED
            for inputs, outputs, (batch, high, wide) in numbers[start % step :: step]:
                image = {1: (high * wide,), 2: (high, wide), 3: (high, wide, 4)}[dims]
                for groups in sorted({1, 2, inputs}):
                    convolution = kernel, stride, padding, dilation, groups, turned
                    yield Shape(inputs, outputs, batch, image, *convolution)


def with_channels_last(tensor: Tensor) -> Tensor:
    """A tensor of any number of dimensions laid out like this; with a single channel, too, it says so."""
    return tensor.movedim(1, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 1)


def verdict(shape: Shape, guarded: bool) -> str:
    """What is wrong with a shape."""
    torch.manual_seed(0)
    images, weight = torch.randn(shape.batch, shape.inputs, *shape.image), torch.randn(shape.weight)
    right = results(shape, images.double(), weight.double(), torch.clone, guarded=False)
    found = results(shape, images, weight, with_channels_last, guarded)
    for what, ours, theirs in zip(("output", "gradient of images", "gradient of weight"), found, right, strict=True):
        if not float((ours - theirs).abs().max()) <= FAR * float(theirs.abs().max()):
            return f"wrong {what}"
    return FINE


def results(
    shape: Shape, images: Tensor, weight: Tensor, laid_out: Callable[[Tensor], Tensor], guarded: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Output and both gradients of a convolution in a layout."""
    images, weight = laid_out(images).requires_grad_(), laid_out(weight).requires_grad_()
    output = shape.computed(images, weight, guarded)
    weights = laid_out(torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output))
    of_images, of_weight = torch.autograd.grad(output, (images, weight), weights)
    return output.detach(), of_images, of_weight


def overrun() -> str:
    """What the checks must not let pass: one byte too many."""
    block = torch.empty(100)
    ctypes.memset(block.data_ptr(), 0, 401)
    return FINE


def alone(calls: Sequence[Callable[[], str]]) -> list[str]:
    """What calls in a process of their own say, up to the first that is not fine."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a process that breaks down says so at length
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for call in calls:
            signal.alarm(PATIENCE)  # broken memory may also make it wait for ever
            said = call()
            os.write(writer, f"{said}\n".encode())
            if said != FINE:
                break
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    return [*said, ENDS] if status else said


def judged(some: Sequence[Shape], guarded: bool = False) -> dict[Shape, str]:
    """What is wrong with each shape."""
    found: dict[Shape, str] = {}
    while len(found) < len(some):
        few = some[len(found) : len(found) + TOGETHER]
        calls = [partial(verdict, shape, guarded) for shape in few]
        said = alone(calls)
        if said[-1] != FINE:
            last = len(said) - 1
            said[last] = often(calls[last], TIMES)
            if said[last] == FINE:  # so one before it may have broken something
                said = [often(call, TIMES) for call in calls[: last + 1]]
                print(f"broke down at {few[last]}, which is fine alone; all until there: {Counter(said)}")
        found |= dict(zip(few, said, strict=False))
    return found


def often(call: Callable[[], str], processes: int = 1) -> str:
    """What a call says in processes of its own, if one of them finds it not fine."""
    tries = (alone([call] * TIMES)[-1] for _ in range(processes))
    return next((said for said in tries if said != FINE), FINE)


def tell(title: str, bad: dict[Shape, str]) -> None:
    """The bad shapes by family."""
    print(f"{title}: {len(bad)}")
    for family in dict.fromkeys(shape.family for shape in bad):
        own = {shape: what for shape, what in bad.items() if shape.family == family}
        inputs, outputs = ({getattr(shape, name) for shape in own} for name in ("inputs", "outputs"))
        print(f"  {family}: {len(own)}, {sorted(inputs)} to {sorted(outputs)} channels; {dict(Counter(own.values()))}")


def search(every: int) -> int:
    """Try all shapes, then what takes the place of those that the rule forbids."""
    if alone([overrun]) != [ENDS]:
        sys.exit("this C library does not see a write past a block of memory, so the search would find nothing")
    tried = [shape for shape in shapes() if shape.exists]
    verdict(tried[0], guarded=False)  # processes to come need not load what this has loaded
    sampled = random.Random(0).sample(tried, len(tried) // every)
    found = judged([shape for shape in sampled if not shape.is_covered])
    found |= {shape: often(partial(verdict, shape, False)) for shape in sampled if shape.is_covered}
    bad = {shape: what for shape, what in found.items() if what != FINE}
    print(f"{len(found)} shapes tried, PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    tell("bad", bad)
    missed = {shape: what for shape, what in bad.items() if not shape.is_covered}
    tell("bad, and not covered by the rule", missed)
    instead = judged([shape for shape in found if shape.is_covered], guarded=True)
    still = {shape: what for shape, what in instead.items() if what != FINE}
    tell(f"bad of {len(instead)} that the rule replaces, when replaced", still)
    return 1 if missed or still else 0


def main() -> int:
    """As told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", help="kernels of another processor: AVX2, SSE41 ...")
    parser.add_argument("--every", type=int, default=1)
    told = parser.parse_args()
    wanted = dict(CHECKS)
    if told.isa:
        wanted |= {"ONEDNN_MAX_CPU_ISA": told.isa, "ATEN_CPU_CAPABILITY": {"AVX2": "avx2"}.get(told.isa, "default")}
    if any(os.environ.get(name) != value for name, value in wanted.items()):  # all are read as a process begins
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})
    torch.set_num_threads(1)
    return search(told.every)


if __name__ == "__main__":
    sys.exit(main())
