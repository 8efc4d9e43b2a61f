"""Running a network once to watch its layers; the network and the random numbers are afterwards as they were."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from potluck.core.inputs import Inputs, call

Given = tuple[Any, ...]
"""What a layer is called with, keyword arguments last."""

Before = Callable[[str, nn.Module, Given], None]
"""Hears of a layer that is about to run: (name, layer, what it is given)."""

After = Callable[[str, nn.Module, Given, Any], None]
"""Hears of a layer that has run: (name, layer, what it was given, its output)."""

REFILLED = (dict, OrderedDict, list, set)


def observe(
    net: nn.Module,
    example: Inputs,
    layers: Mapping[str, nn.Module] | None = None,
    before: Before | None = None,
    after: After | None = None,
    training: bool = False,
) -> Any:
    """The network's output for an example; `before` and `after` hear of every call of these layers."""
    with undisturbed(net, training), listening(layers or {}, before, after):
        return call(net, example)


@contextmanager
def undisturbed(net: nn.Module, training: bool = False) -> Iterator[None]:
    """One mode for all modules, no gradients; modes, random state and what modules remember are restored at the end."""
    lazy = [(module, module.training) for module in net.modules() if isinstance(module, LazyModuleMixin)]
    before = [
        (module, dict(vars(module)), contents(module))
        for module in net.modules()
        if not isinstance(module, LazyModuleMixin)
    ]
    net.train(training)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        for unready, mode in lazy:  # the first run gave it its parameters and another class
            unready.training = mode
        for module, attributes, inside in before:
            vars(module).clear()
            vars(module).update(attributes)
            for name, content in inside.items():
                refill(attributes[name], content)


def contents(module: nn.Module) -> dict[str, Any]:
    """What is in a module's lists, sets and dictionaries, its buffers and hooks among them."""
    kept = ("_modules", "_parameters")  # what a first run makes stays
    return {name: value.copy() for name, value in vars(module).items() if type(value) in REFILLED and name not in kept}


def refill(container: Any, content: Any) -> None:
    """Put into a list, set or dictionary what was in it."""
    container.clear()
    if isinstance(container, list):
        container.extend(content)
    else:
        container.update(content)


@contextmanager
def listening(
    layers: Mapping[str, nn.Module], before: Before | None = None, after: After | None = None
) -> Iterator[None]:
    """Hooks on these layers and on no more: PyTorch's fused transformer layers do not run where a hook is."""
    hooks = []
    try:
        for name, layer in layers.items():
            if before is not None:
                hooks.append(layer.register_forward_pre_hook(hook_before(name, before), with_kwargs=True))
            if after is not None:
                hooks.append(layer.register_forward_hook(hook_after(name, after), with_kwargs=True))
        yield
    finally:
        for hook in hooks:
            hook.remove()


def hook_before(name: str, listener: Before) -> Callable[[nn.Module, Given, dict[str, Any]], None]:
    """A listener as a hook of PyTorch's, which must return nothing, or it would change the input."""

    def hook(layer: nn.Module, given: Given, named: dict[str, Any]) -> None:
        listener(name, layer, (*given, *named.values()))

    return hook


def hook_after(name: str, listener: After) -> Callable[[nn.Module, Given, dict[str, Any], Any], None]:
    """A listener as a hook of PyTorch's, which must return nothing, or it would change the output."""

    def hook(layer: nn.Module, given: Given, named: dict[str, Any], output: Any) -> None:
        listener(name, layer, (*given, *named.values()), output)

    return hook
