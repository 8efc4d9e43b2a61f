"""Some of the examples of a larger set."""

import torch

from potluck.core.data import Arrays, evenly_spaced


def test_evenly_spaced_examples_are_those_of_the_whole():
    whole = Arrays(torch.arange(10).float(), torch.arange(10) % 3)
    part = evenly_spaced(whole, 4)
    inputs, targets = part.take(torch.arange(len(part)))
    assert inputs.tolist() == [0.0, 2.0, 5.0, 7.0]
    assert targets.tolist() == [0, 2, 2, 1] == part.labels(torch.arange(4)).tolist()


def test_a_set_that_is_small_enough_stays_whole():
    whole = Arrays(torch.zeros(3), torch.zeros(3, dtype=torch.long))
    assert evenly_spaced(whole, 3) is whole
