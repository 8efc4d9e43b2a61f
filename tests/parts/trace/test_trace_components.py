"""Which atoms are one channel, whatever the order of their pairs."""

from __future__ import annotations

import pytest
import torch

from potluck.core.random import stream
from potluck.parts.trace.findings import components


def test_two_atoms_that_meet_a_third_are_one_channel_with_it() -> None:
    assert components(4, torch.tensor([[1, 2], [3, 3]])).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("count", [0, 1, 10, 20, 40])
def test_every_atom_belongs_to_the_smallest_that_pairs_lead_to(count: int) -> None:
    pairs = torch.randint(30, (2, count), generator=stream(0, "pairs", count))
    expected = list(range(30))
    for _ in range(30):  # no way is longer
        for pair in pairs.T.tolist():
            least = min(expected[each] for each in pair)
            for each in pair:
                expected[each] = least
    assert components(30, pairs).tolist() == expected
