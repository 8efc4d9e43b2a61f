"""Numbers to watch, worked out by hand for layers whose singular values are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from potluck.parts.lowrank.decompose import Decomposition, decompose
from potluck.parts.lowrank.diagnosis import carried_by, diagnosis, is_exact, kappas, lost_share
from potluck.parts.lowrank.layers import Unrolled

LAYER = Unrolled.of(nn.Linear(3, 2))
GROUPS = Unrolled.of(nn.Conv2d(4, 4, 1, groups=2))


def of(*matrices: list[list[float]]) -> Decomposition:
    return decompose(torch.tensor(matrices, dtype=torch.float64))


FOUR_ONE = [[4.0, 0.0, 0.0], [0.0, 1.0, 0.0]]  # σ = 4, 1: energy 17
TWO_GROUPS = ([[4.0, 0.0], [0.0, 1.0]], [[0.0, 3.0], [2.0, 0.0]])  # σ = 4, 1 and 3, 2: energies 17 and 13


def leading(found: Decomposition, count: int) -> Decomposition:
    """As a randomised decomposition has it: the first values alone, and all of the energy."""
    return Decomposition(found.left[..., :count], found.right[..., :count], found.values[..., :count], found.energy)


# ---- the share of energy that is lost ----


@pytest.mark.parametrize(("rank", "lost"), [(0, 1.0), (1, 1 / 17), (2, 0.0)])
def test_the_lost_share(rank: int, lost: float) -> None:
    assert lost_share(of(FOUR_ONE), rank) == pytest.approx(lost, abs=1e-15)


def test_the_lost_share_of_groups_is_of_their_sum() -> None:
    assert lost_share(of(*TWO_GROUPS), 1) == pytest.approx((1 + 4) / 30)


def test_a_layer_of_zeros_loses_nothing() -> None:
    assert lost_share(of([[0.0, 0.0], [0.0, 0.0]]), 1) == 0.0


def test_the_lost_share_where_few_values_are_known() -> None:
    assert lost_share(leading(of(FOUR_ONE), 1), 1) == pytest.approx(1 / 17)


# ---- the theorem's constants ----


def test_one_client_with_all_of_it() -> None:
    assert kappas(of(FOUR_ONE), [2]) == pytest.approx((0.0, 0.0))
    assert kappas(of(FOUR_ONE), [None]) == pytest.approx((0.0, 0.0))
    assert kappas(of(FOUR_ONE), [None, None, 2]) == pytest.approx((0.0, 0.0))


def test_one_client_with_a_low_rank() -> None:
    """The mean is (4, 0): κσ1 = 1² and nobody differs from it."""
    assert kappas(of(FOUR_ONE), [1]) == pytest.approx((1.0, 0.0))


@pytest.mark.parametrize("whole", [2, None])
def test_a_whole_client_and_a_low_rank(whole: int | None) -> None:
    """Roots (2, 1) and (2, 0), mean (2, 1/2): κσ1 = (1/4 - 1)², κσ2 = (1/2)²."""
    assert kappas(of(FOUR_ONE), [whole, 1]) == pytest.approx((0.75**2, 0.25))


def test_two_whole_clients_among_three() -> None:
    """Roots of the second value 1, 1, 0, mean 2/3: κσ1 = (4/9 - 1)², κσ2 = (2/3)²."""
    assert kappas(of(FOUR_ONE), [None, 1, None]) == pytest.approx((25 / 81, 4 / 9))


def test_no_clients() -> None:
    assert kappas(of(FOUR_ONE), []) == (0.0, 0.0)


def test_groups_are_summed() -> None:
    """Ranks 2 and 1: (3/4)² (1 + 4) and, of the roots 1 and √2, (1/2)² (1 + 2)."""
    assert kappas(of(*TWO_GROUPS), [2, 1]) == pytest.approx((0.75**2 * 5, 0.75))


def test_a_whole_client_where_few_values_are_known() -> None:
    """What is beyond counts as held by the whole client: (1 - 1/4)² of the energy 1."""
    known = leading(of(FOUR_ONE), 1)
    assert kappas(known, [None, 1])[0] == pytest.approx(0.75**2)
    assert kappas(known, [1])[0] == pytest.approx(1.0)
    assert kappas(known, [None])[0] == pytest.approx(0.0)


# ---- effective ranks ----


def test_the_effective_rank_of_one_layer_and_of_groups() -> None:
    def by_hand(*energies: float) -> float:
        return math.exp(-sum(e / sum(energies) * math.log(e / sum(energies)) for e in energies))

    assert carried_by(of(FOUR_ONE), LAYER) == pytest.approx(by_hand(16, 1))
    assert carried_by(of(*TWO_GROUPS), GROUPS) == pytest.approx((by_hand(16, 1) + by_hand(9, 4)) / 2)
    assert carried_by(leading(of(FOUR_ONE), 1), LAYER) == pytest.approx(by_hand(16, 1))  # one value is left


def test_whether_all_values_are_known() -> None:
    assert is_exact(of(FOUR_ONE), LAYER)
    assert not is_exact(leading(of(FOUR_ONE), 1), LAYER)
    assert is_exact(of(*TWO_GROUPS), GROUPS)


# ---- all together ----


LAYERS = {"line": LAYER, "groups": GROUPS}
RANKS = {"whole": {}, "half": {"line": 1, "groups": 1}, "some": {"line": 1}}


def test_everything_of_a_round() -> None:
    decomposed = {"line": of(FOUR_ONE), "groups": of(*TWO_GROUPS)}
    found = diagnosis(decomposed, LAYERS, RANKS, {"whole": 1, "half": 1, "some": 0})
    assert found["ranks"] == RANKS
    assert found["lost_energy"]["whole"] == {}
    assert found["lost_energy"]["half"] == pytest.approx({"line": 1 / 17, "groups": 5 / 30})
    assert found["lost_energy"]["some"] == pytest.approx({"line": 1 / 17})
    assert found["kappa_sigma1"] == pytest.approx({"line": 0.75**2, "groups": 0.75**2 * 5})
    assert found["kappa_sigma2"] == pytest.approx({"line": 0.25, "groups": 0.75})
    assert found["effective_rank"].keys() == LAYERS.keys()
    assert found["decomposed_exactly"] == 2


def test_a_level_that_has_a_layer_whole_counts_as_a_whole_client() -> None:
    """Two clients of `some` and one of `half`: of the groups two are whole, of the line none."""
    decomposed = {"line": of(FOUR_ONE), "groups": of(*TWO_GROUPS)}
    found = diagnosis(decomposed, LAYERS, RANKS, {"half": 1, "some": 2})
    assert found["kappa_sigma1"] == pytest.approx({"line": 1.0, "groups": 25 / 81 * 5})
    assert found["kappa_sigma2"] == pytest.approx({"line": 0.0, "groups": 4 / 9 * 3})


@pytest.mark.parametrize("joined", [{}, {"whole": 0, "half": 0}])
def test_a_round_without_clients(joined: dict[str, int]) -> None:
    found = diagnosis({"line": of(FOUR_ONE)}, {"line": LAYER}, {"half": {"line": 1}}, joined)
    assert found["kappa_sigma1"] == found["kappa_sigma2"] == {"line": 0.0}
    assert found["lost_energy"] == {"half": {"line": pytest.approx(1 / 17)}}


def test_what_is_not_known_exactly_is_counted() -> None:
    decomposed = {"line": leading(of(FOUR_ONE), 1), "groups": of(*TWO_GROUPS)}
    assert diagnosis(decomposed, LAYERS, RANKS, {"half": 1})["decomposed_exactly"] == 1


def test_the_numbers_are_plain_ones() -> None:
    """They are written to a file of numbers."""

    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(each) for key, each in value.items())
        return type(value) in (int, float) and not isinstance(value, Tensor)

    assert plain(diagnosis({"line": of(FOUR_ONE)}, {"line": LAYER}, {"half": {"line": 1}}, {"half": 2}))
