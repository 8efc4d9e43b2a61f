"""Names of tensors: what is put under a place is found inside it, and nowhere else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from potluck.core.names import inside, outside, own_name, placed, under

PLACES = st.text(st.characters(blacklist_characters="/"), max_size=4) | st.integers(0, 200)
VALUES = st.dictionaries(st.text(max_size=6), st.integers(), max_size=5)


@given(PLACES, VALUES)
def test_what_is_put_under_a_place_is_found_inside_it(place: object, values: dict[str, int]) -> None:
    named = under(place, values)
    assert inside(place, named) == values
    assert list(inside(place, named)) == list(values)  # in the order it had
    assert outside(place, named) == {}
    assert list(named) == [placed(place, name) for name in values]


@given(PLACES, PLACES, VALUES, VALUES)
def test_places_do_not_see_each_other(one: object, other: object, ours: dict[str, int], theirs: dict[str, int]) -> None:
    if str(one) == str(other):
        return
    both = {**under(one, ours), **under(other, theirs)}
    assert inside(one, both) == ours
    assert inside(other, both) == theirs
    assert outside(one, both) == under(other, theirs)


@given(PLACES, st.dictionaries(st.text(max_size=8), st.integers(), max_size=8))
def test_every_value_is_inside_or_outside(place: object, values: dict[str, int]) -> None:
    within, without = under(place, inside(place, values)), outside(place, values)
    assert not set(within) & set(without)
    assert {**within, **without} == values


@given(PLACES, PLACES, VALUES)
def test_places_can_be_inside_places(outer: object, inner: object, values: dict[str, int]) -> None:
    named = under(outer, under(inner, values))
    assert inside(inner, inside(outer, named)) == values
    assert inside(placed(outer, str(inner)), named) == values


def test_a_number_is_no_beginning_of_another() -> None:
    values = {"1/w": "a", "12/w": "b", "1.5/w": "c", "1": "d", "w/1/": "e"}
    assert inside(1, values) == {"w": "a"}
    assert outside(1, values) == {"12/w": "b", "1.5/w": "c", "1": "d", "w/1/": "e"}


def test_own_names_are_those_that_a_network_uses() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2)))
    found = [own_name(path, name) for path, module in net.named_modules() for name in module._parameters]
    assert found == [name for name, _ in net.named_parameters()]
    alone = nn.Linear(2, 2)
    assert [own_name("", name) for name in alone._parameters] == [name for name, _ in alone.named_parameters()]
