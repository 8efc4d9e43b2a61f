"""Watching a network run on one example, to see which dimensions of its parameters are the same channels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from potluck.core.copying import copied, plain_tensors
from potluck.core.errors import ModelError
from potluck.core.inputs import Inputs, call, is_whole, mapped, tensors_of
from potluck.core.logits import LOGITS, entries_of
from potluck.core.observe import Given, listening, undisturbed
from potluck.parts.trace.call import Arguments, Call, UnforeseenCallError
from potluck.parts.trace.general import expanding, fresh, unknown, write_through
from potluck.parts.trace.marks import FIXED, Marked, Marks, Strip
from potluck.parts.trace.rules import rule_for
from potluck.parts.trace.seen import Heads, Step, Trace
from potluck.parts.trace.slices import Slices


class RuleError(Exception):
    """A rule failed: a fault of ours, not of the network's."""


class HiddenError(ModelError):
    """An operation runs code that cannot be watched."""


class Watch(TorchDispatchMode):
    """Follows every operation of a run."""

    supports_higher_order_operators = True  # to refuse them in words of ours

    def __init__(self, trace: Trace, place: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = trace
        self.place = place
        self.known: dict[int, tuple[Tensor, Marked]] = {}  # holds the tensors, so that no address is used twice
        self.fresh: dict[int, list[Tensor]] = {}  # made on the spot, by where their memory is
        self.pending: dict[int, tuple[tuple[Strip, ...], str]] = {}
        self.slices: dict[tuple[int, int], Slices] = {}
        self.read: set[int] = set()

    def mark(self, tensor: Tensor, marks: Marks) -> None:
        if marks is None and not tensor.is_sparse:
            twins = self.fresh.setdefault(tensor.untyped_storage().data_ptr(), [tensor])
            if (tensor.shape, tensor.stride()) == (twins[0].shape, twins[0].stride()):
                twins.append(tensor)
        self.known[id(tensor)] = (tensor, Marked(tuple(tensor.shape), marks))

    def marked(self, tensor: Tensor) -> Marked:
        return self.known[id(tensor)][1] if id(tensor) in self.known else Marked(tuple(tensor.shape), ())  # a constant

    def bases(self, tensor: Tensor) -> list[Tensor]:
        if tensor.is_sparse:
            return []
        return [base for base in self.fresh.get(tensor.untyped_storage().data_ptr(), []) if base is not tensor]

    def note_slice(self, tensor: Tensor, dim: int, piece: tuple[int, int]) -> None:
        lain = [one for one in self.marked(tensor).channels if one.inner == dim and bool((one.atoms >= 0).all())]
        lines = [one.atoms.movedim(dim, -1).reshape(-1, tensor.shape[dim]) for one in lain]
        self.slices.setdefault((id(tensor), dim), Slices(lines)).taken.add(piece)

    def note_merged(self, atoms: Tensor) -> None:
        self.trace.merged.append(atoms)

    def note_multiple(self, atoms: Tensor, number: int) -> None:
        self.trace.multiples.append((atoms, number))

    def note_heads(self, atoms: Tensor) -> None:
        self.trace.heads.append(Heads(self.place[-1], atoms))

    def fix_if_used(self, tensor: Tensor, strips: tuple[Strip, ...], reason: str) -> None:
        self.pending[id(tensor)] = (strips, reason)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):
            raise HiddenError(
                f"channels cannot be followed through {func.name()} in {self.place[-1]}, which is given code to run; "
                "use plain operations there, or give a function of the width instead of a network"
            )
        result = func(*args, **(kwargs or {}))
        outputs = tensors_in(result)
        names = [argument.name for argument in func._schema.arguments]
        named = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
        given = Arguments({name: list(each) if isinstance(each, tuple) else each for name, each in named.items()})
        call = Call(
            func, given, outputs, self.marked, self.trace.joins, self.place[-1], self.note_lines, self, self.fix_if_used
        )
        found = self.propagate(call)
        for output, marks in zip(outputs, found, strict=True):
            self.mark(output, marks)
            for one in marks or ():
                if len(one.span) > 1 and one.pending is None and not one.free:
                    self.note_heads(one.atoms)
        alias = func._schema.arguments[0].alias_info if names else None
        target = given.get(names[0]) if alias is not None and alias.is_write else None
        if isinstance(target, Tensor) and found:
            self.spread(call, target, found[0])
        marked = tuple(Marked(tuple(output.shape), marks) for output, marks in zip(outputs, found, strict=True))
        name = func.overloadpacket.__name__
        self.trace.steps.append(Step(name, self.place[-1], tuple(tuple(o.shape) for o in outputs), marked))
        return result

    def propagate(self, call: Call) -> list[Marks]:
        """The marks of the outputs; where no channels come in, none come out."""
        for tensor in call.tensors:
            self.read.add(id(tensor))
            self.trace.joins.fix(*self.pending.pop(id(tensor), ((), "")))
        incoming = [call.marks_of(tensor) for tensor in call.tensors]
        rule = rule_for(call.operation)
        if not any(incoming) and rule not in (fresh, expanding):
            free = all(marks is None for marks in incoming)
            return [None if free else ()] * len(call.outputs)
        try:
            return rule(call)
        except UnforeseenCallError:
            return unknown(call)
        except Exception as error:
            raise RuleError(f"the rule for {call.what} failed: {type(error).__name__}: {error}") from error

    def spread(self, call: Call, target: Tensor, marks: Marks) -> None:
        """Tell the tensors that share their memory with what was written into."""
        try:
            write_through(call, target, marks)
        except UnforeseenCallError:
            unknown(call)

    def note_lines(self, lines: Tensor) -> None:
        self.trace.lines.append(lines)


def trace(net: nn.Module, example: Inputs) -> Trace:
    """Run a copy of the network on one example, in evaluation, and watch.

    If that leaves parameters unread, it runs once more in training: some are for training alone.
    """
    net, example = with_values(copied(net), example)
    plain = plain_tensors(net)
    parameters = dict(net.named_parameters(remove_duplicate=False))
    named = {**parameters, **dict(net.named_buffers(remove_duplicate=False)), **plain}
    atoms, marks, total = label(named)
    seen = Trace(atoms, total)

    def watch() -> Watch:
        watching = Watch(seen, ["the network"])
        for name, tensor in named.items():
            watching.mark(tensor, marks[name])
        return watching

    evaluation = watch()
    try:
        follow(net, example, evaluation, training=False, plain=plain)
    except (RuleError, HiddenError):
        raise
    except Exception as error:  # whatever the user's own code raises
        shapes = " and ".join(map(size_of, tensors_of(example)))
        place = evaluation.place[-1]
        raise ModelError(f"the network cannot run on an input of {shapes}: in {place}, {error}") from error
    if any(id(parameter) not in evaluation.read for parameter in parameters.values()):
        steps, results = list(seen.steps), list(seen.results)
        for batch in batches_to_train_on(example):
            try:
                follow(net, batch, watch(), training=True, plain={})
                break
            except RuleError:
                raise
            except Exception:  # it may ask for more than one example, or for labels
                continue
        seen.steps, seen.results = steps, results
    return seen


def with_values(net: nn.Module, example: Inputs) -> tuple[nn.Module, Inputs]:
    """The network and the example, with zeros for values if they have none, on the meta device.

    Values do not matter, but which tensors share their memory does, and there is none on the meta device.
    """
    if not any(tensor.is_meta for tensor in (*net.parameters(), *net.buffers())):
        return net, example
    net = net.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.buffers()):
            tensor.zero_()
    return net, mapped(lambda tensor: torch.zeros_like(tensor, device="cpu"), example)


def batches_to_train_on(example: Inputs) -> list[Inputs]:
    """The example, and the example twice: batch norm cannot train on one."""
    return [example, mapped(lambda tensor: torch.cat([tensor, tensor]) if tensor.dim() else tensor, example)]


def follow(net: nn.Module, example: Inputs, watch: Watch, training: bool, plain: Mapping[str, Tensor]) -> None:
    """Run a network once, and add what is seen to the trace."""
    for tensor in tensors_of(example):
        watch.mark(tensor, ())

    def note(name: str, output: object) -> None:
        watch.trace.results.append((name, tuple(watch.marked(tensor) for tensor in tensors_in(output))))

    with plain_operations(), undisturbed(net, training):
        with placed(net, watch.place, note), watch:
            output = call(net, example)
        now = plain_tensors(net)
    for name, tensor in plain.items():
        if name in now and now[name] is not tensor and now[name].shape == tensor.shape:  # the run computes it anew
            watch.trace.atoms[name] = lain(watch.marked(now[name]))
    for slices in watch.slices.values():
        watch.trace.lines.extend(slices.rows())
    for tensor in output_tensors(output):
        watch.trace.joins.fix(watch.marked(tensor).strips, "it is the network's output")


def lain(marked: Marked) -> tuple[Tensor, ...]:
    """The atoms along each dimension of a tensor that a run made."""
    found = [torch.full((size,), FIXED) for size in marked.shape]
    for one in marked.channels:
        if len(one.span) == 1 and one.pending is None:
            found[one.inner] = one.atoms.flatten().clamp_min(FIXED)
    return tuple(found)


def label(named: Mapping[str, Tensor]) -> tuple[dict[str, tuple[Tensor, ...]], dict[str, Marks], int]:
    """An atom for every index of every dimension of every tensor, and their number; tied tensors share theirs."""
    atoms: dict[str, tuple[Tensor, ...]] = {}
    marks: dict[str, Marks] = {}
    seen: dict[int, str] = {}
    last = 0
    for name, tensor in named.items():
        twin = seen.setdefault(id(tensor), name)
        if twin == name:
            own, found = [], []
            for dim, size in enumerate(tensor.shape):
                own.append(torch.arange(last + 1, last + 1 + size))
                last += size
                if size > 1:
                    found.append(Strip(own[-1].reshape([-1 if place == dim else 1 for place in range(tensor.dim())])))
            atoms[name], marks[name] = tuple(own), tuple(found)
        else:
            atoms[name], marks[name] = atoms[twin], marks[twin]
    return atoms, marks, last + 1


@contextmanager
def plain_operations() -> Iterator[None]:
    """Have PyTorch take recurrent layers and attention apart into operations that have rules."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def placed(net: nn.Module, place: list[str], note: Callable[[str, object], None]) -> Iterator[None]:
    """Keep the running module's name at the end of the list, and report the output of each module."""

    def entered(name: str, layer: nn.Module, given: Given) -> None:
        place.append(f"'{name}'")

    def left(name: str, layer: nn.Module, given: Given, output: object) -> None:
        note(place.pop(), output)

    with listening({name: module for name, module in net.named_modules() if name}, entered, left):
        yield


def size_of(tensor: Tensor) -> str:
    """The size of an input, in an error."""
    return f"{'x'.join(map(str, tensor.shape))}{' whole numbers' if is_whole(tensor) else ''}"


def tensors_in(output: object) -> list[Tensor]:
    """The tensors in what a module gives."""
    leaves = ([leaf] if isinstance(leaf, Tensor) else tensors_in(entries_of(leaf)) for leaf in tree_leaves(output))
    return [tensor for each in leaves for tensor in each]


def output_tensors(output: object) -> list[Tensor]:
    """The tensors that a network's user sees: the logits of an output that has some, or else all of them."""
    logits = entries_of(output).get(LOGITS)
    return tensors_in(output if logits is None else logits)
