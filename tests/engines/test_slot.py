"""Shared memory: what one side writes the other reads, whoever makes room."""

from __future__ import annotations

import os
from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from odd import oddities
from torch import Tensor
from toys import WIDE, Remembering, make_desk, make_site, same

from potluck.core.client import Site
from potluck.core.data import Arrays, Pool
from potluck.core.memo import Memo
from potluck.core.tensors import copied
from potluck.core.types import Client, Context, Job, Level, Tensors
from potluck.engines.luggage import LARGE, pack, unpack
from potluck.engines.rows import Rows
from potluck.engines.slot import ALIGNMENT, Slot, planned

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


def two_sides() -> tuple[Slot, Slot]:
    """One memory as two processes see it."""
    ours = Slot.create()
    return ours, Slot(os.dup(ours.handle))


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    values = 50 * torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 1000))))
    tensor = values.to(draw(st.sampled_from(TYPES)))
    return tensor.transpose(0, -1) if tensor.dim() > 1 and draw(st.booleans()) else tensor


GROUPS = st.dictionaries(st.text(max_size=5), tensors(), max_size=4)


@settings(deadline=None)
@given(st.lists(GROUPS, min_size=1, max_size=4))
def test_groups_written_by_turns_are_all_there(groups: list[Tensors]) -> None:
    ours, theirs = two_sides()
    layouts, end = [], 0
    for number, group in enumerate(groups):
        layout, end = (ours, theirs)[number % 2].write(group, end)
        layouts.append(layout)
        assert end % ALIGNMENT == 0
        assert all(offset % ALIGNMENT == 0 for *_, offset in layout)
    for side in (ours, theirs):
        for layout, group in zip(layouts, groups, strict=True):
            found = side.views(layout)
            assert same(copied(found), group)
            assert oddities(found) == []
        side.close()


def test_either_side_makes_room_and_the_other_follows() -> None:
    ours, theirs = two_sides()
    layout, end = ours.write({"small": torch.arange(3.0)})
    assert theirs.views(layout)["small"].tolist() == [0.0, 1.0, 2.0]
    held = theirs.views(layout)["small"]
    large = torch.arange(100_000.0)
    answer, _ = theirs.write({"large": large}, end)  # their side grows the file beyond what we see
    assert torch.equal(ours.views(answer)["large"], large)
    assert held.tolist() == [0.0, 1.0, 2.0]  # a view from before still stands
    larger = torch.arange(300_000.0)
    back, _ = ours.write({"larger": larger}, end)
    assert torch.equal(theirs.views(back)["larger"], larger)
    assert theirs.views(layout)["small"].tolist() == [0.0, 1.0, 2.0]


def test_a_slot_is_lent_until_the_last_tensor_is_gone() -> None:
    ours, theirs = two_sides()
    layout, _ = ours.write({"w": torch.zeros(2), "b": torch.ones(3)})
    lent = theirs.lend(layout)
    ours.views(layout)["w"].fill_(7)
    assert lent["w"].tolist() == [7.0, 7.0]  # not a copy
    part = lent["b"][1:]
    again = theirs.lend(layout)
    assert theirs.lent == 2
    del lent, again
    assert theirs.lent == 1
    del part
    assert theirs.lent == 0
    assert theirs.lend([]) == {}
    assert theirs.lent == 0


def test_tensors_without_a_scalar_are_lent_from_a_slot_that_was_never_written_to() -> None:
    layout, end = planned({"empty": ((3, 0), torch.float32)}, 0)
    assert end == 0
    slot = Slot.create()
    assert slot.lend(layout)["empty"].shape == (3, 0)
    assert slot.lent == 0


def test_clients_that_look_like_the_first_have_a_row_each_and_memory_behind_it() -> None:
    ours, theirs = two_sides()
    rows = Rows(theirs, 4)
    assert rows.add({}, 128) is None  # nothing, as of a client that failed
    end = rows.add({"w": torch.ones(3), "n": torch.tensor(1)}, 128)
    assert end == 128 + 4 * 2 * ALIGNMENT  # room for four
    assert theirs.reserved == end
    assert rows.add({"w": torch.ones(2), "n": torch.tensor(1)}, end) is None
    assert rows.add({"w": 2 * torch.ones(3), "n": torch.tensor(2)}, end) == end
    found = rows.written()
    stack = found.stack(ours.views(found.tables))  # of two: nothing that nobody wrote
    assert stack["w"].tolist() == [[1.0] * 3, [2.0] * 3]
    assert stack["n"].tolist() == [1, 2]


def test_a_slot_is_used_again_from_the_start() -> None:
    slot = Slot.create()
    slot.write({"w": torch.ones(1000)})
    size = os.fstat(slot.handle).st_size
    layout, _ = slot.write({"w": torch.zeros(1000)})
    assert os.fstat(slot.handle).st_size == size
    assert slot.views(layout)["w"].sum() == 0


def arrays_of(site: Site) -> Arrays:
    assert isinstance(site.holder, Pool)
    assert isinstance(site.holder.train, Arrays)
    return site.holder.train


def made_here(level: Level, ctx: Context) -> str:
    return level.name


def test_large_tensors_travel_beside_the_luggage_and_arrive_shared() -> None:
    ours, theirs = two_sides()
    site = make_site(Remembering("somewhere"))
    desk = replace(make_desk(site), test=arrays_of(site))
    for place in (site, desk):
        place.recipe.context(0, place.memo).once(made_here, WIDE)
        assert place.memo.made
    packed = pack(site, desk, ours)
    whole = arrays_of(site)
    assert whole.inputs.numel() * 4 > LARGE > len(packed)
    (first, its_desk), (second, _) = unpack(packed, theirs), unpack(packed, theirs)
    assert torch.equal(arrays_of(first).inputs, whole.inputs)
    assert arrays_of(first).inputs.data_ptr() == arrays_of(second).inputs.data_ptr()
    assert torch.equal(arrays_of(first).targets, whole.targets)
    assert its_desk.test is arrays_of(first)  # what the two share travels once
    assert its_desk.recipe is first.recipe
    assert first.method == site.method
    assert first.works == site.works
    assert first.memo == its_desk.memo == Memo()


def test_what_cannot_be_imported_travels_by_value() -> None:
    ours, theirs = two_sides()
    offset = 5
    site = make_site(Remembering(), model=lambda width: torch.nn.Linear(offset, 1))
    there, _ = unpack(pack(site, make_desk(site), ours), theirs)
    assert there.task.model(WIDE).in_features == 5


def test_work_that_cannot_be_imported_travels_by_value() -> None:
    ours, theirs = two_sides()
    offset = torch.tensor(5)
    site = make_site(Remembering(), works={"add": lambda site, job, personal: ({"sum": job.payload["w"] + offset}, {})})
    there, _ = unpack(pack(site, make_desk(site), ours), theirs)
    job = Job(Client(0, WIDE, 1, ()), 0, {"w": torch.ones(2)})
    assert there.works["add"](there, job, {})[0]["sum"].tolist() == [6.0, 6.0]
