"""Data sets that are asked for item by item: in memory where they fit, and the same bits where they do not."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, SubsetRandomSampler

import potluck
from potluck.core.data import Arrays
from potluck.core.errors import ConfigError, DataError
from potluck.core.goals.named import goal_named
from potluck.data.columns.ragged import Ragged
from potluck.data.dataset import Dataset as Whole
from potluck.data.items import collect
from potluck.data.items.lazy import Items
from potluck.data.own import examples_from


class Made(Dataset):
    """Items that a function makes of their numbers; how often each was asked for is counted."""

    def __init__(self, make, count=6):
        self.make, self.count, self.asked = make, count, []

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        self.asked.append(number)
        return self.make(number)


class Stream(IterableDataset):
    def __init__(self, make, count):
        self.make, self.count = make, count

    def __iter__(self):
        return (self.make(number) for number in range(self.count))


def pair(number):
    return np.arange(number, number + 3, dtype=np.float64), number % 2


def keyed(number):
    return {"ids": torch.arange(number + 1), "mask": torch.ones(number + 1), "label": number % 2}


def read(data, **how):
    return potluck.examples(data, **how).examples


@pytest.fixture
def tight(monkeypatch):
    """Nothing fits in memory."""
    monkeypatch.setattr(collect, "MOST_BYTES", 0)


def test_more_than_two_entries_are_several_inputs():
    examples = examples_from(Made(lambda number: (torch.ones(2), np.uint8(number), number % 2)))
    first, second = examples.take(torch.tensor([3]))[0]
    assert (first.tolist(), second.tolist()) == ([[1, 1]], [pytest.approx(3 / 255)])


def test_dictionaries_are_arguments_by_name():
    examples = read(
        Made(lambda number: {"x": torch.ones(2), "deep": {"z": (number, 2.0)}, "kind": number}), target="kind"
    )
    inputs, targets = examples.take(torch.tensor([4]))
    assert inputs["deep"]["z"][0].tolist() == [4]
    assert inputs["deep"]["z"][1].dtype is torch.float32
    assert (sorted(inputs), targets.tolist()) == (["deep", "x"], [4])


def test_inputs_choose_keys_and_rename_them():
    data = Made(keyed)
    assert isinstance(read(data, inputs="mask", pad=0).inputs, Ragged)
    assert list(read(data, inputs=["ids"], pad=0).inputs) == ["ids"]
    assert list(read(data, inputs={"input_ids": "ids"}, pad={"input_ids": 5}).inputs) == ["input_ids"]


def test_every_item_is_read_once_more_than_the_first():
    data = Made(pair)
    assert isinstance(examples_from(data), Arrays)
    assert sorted(data.asked) == [0, 0, 0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("make", "how"), [(pair, {}), (keyed, {"pad": 9}), (keyed, {"pad": {"ids": 9, "mask": -1}})])
def test_lazy_and_in_memory_give_the_same_bits(make, how, monkeypatch):
    held = read(Made(make), **how)
    monkeypatch.setattr(collect, "MOST_BYTES", 0)
    lazy = read(Made(make), **how)
    assert (type(held), type(lazy)) == (Arrays, Items)
    for goal in (None, goal_named("classes")):
        sets = [each if goal is None else Whole(each, each).aimed_at(goal).train for each in (held, lazy)]
        for index in (torch.tensor([5, 0, 3]), torch.tensor([2])):
            one, other = (each.take(index, torch.Generator().manual_seed(1)) for each in sets)
            assert str(one) == str(other)
            assert torch.equal(sets[0].labels(index), sets[1].labels(index))


def test_labels_of_lazy_items_read_nothing(tight):
    data = Made(pair)
    examples = examples_from(data)
    data.asked.clear()
    assert examples.labels(torch.arange(6)).tolist() == [0, 1] * 3
    assert not data.asked


def drawing(number):
    return torch.tensor([torch.rand(1).item(), np.random.rand(), random.random(), number]), number % 2


def test_random_items_stay_lazy_and_follow_the_generator():
    examples = examples_from(Made(drawing))
    assert isinstance(examples, Items)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()

    def take(index, seed=None):
        rng = None if seed is None else torch.Generator().manual_seed(seed)
        return examples.take(torch.tensor(index), rng)[0]

    assert torch.equal(take([1, 2], 5)[1], take([2, 4, 3], 5)[0])
    assert not torch.equal(take([1], 5), take([1], 6))
    assert not torch.equal(take([1], 5)[0, :3], take([2], 5)[0, :3])
    assert torch.equal(take([1, 3]), take([3, 1]).flip(0))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]


def test_an_item_that_draws_late_is_found():
    assert isinstance(examples_from(Made(lambda number: drawing(number) if number == 4 else (torch.ones(4), 0))), Items)


def test_the_generator_is_not_moved(tight):
    rng = torch.Generator().manual_seed(3)
    state = rng.get_state()
    examples_from(Made(pair)).take(torch.tensor([1]), rng)
    assert torch.equal(rng.get_state(), state)


def test_a_generator_of_its_own_is_refused():
    own = np.random.default_rng(0)
    with pytest.raises(DataError, match="item 0 of the data is another each time it is read"):
        examples_from(Made(lambda number: (own.random(3), 0)))


def padded(items):
    longest = max(len(ids) for ids, _ in items)
    ids = torch.stack([torch.nn.functional.pad(ids, (0, longest - len(ids)), value=8) for ids, _ in items])
    return {"ids": ids, "labels": torch.tensor([label for _, label in items])}


def sequence(number):
    return torch.arange(number + 1), number % 2


def test_a_function_of_the_users_makes_batches():
    loader = DataLoader(Made(sequence), batch_size=4, collate_fn=padded)
    for examples in (examples_from(loader), read(Made(sequence), collate=padded)):
        inputs, targets = examples.take(torch.tensor([0, 2]))
        assert inputs["ids"].tolist() == [[0, 8, 8], [0, 1, 2]]
        assert (targets.tolist(), examples.even) == ([0, 0], False)
        assert examples.labels(torch.arange(6)).tolist() == [0, 1] * 3
        assert examples.made_up[0]["ids"].shape == (1, 6)


def test_loaders_without_one_are_their_data_sets():
    examples = examples_from(DataLoader(Made(pair), batch_size=4, shuffle=True))
    assert examples.inputs[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert len(examples_from(DataLoader(Stream(pair, 5)))) == 5


def test_a_sampler_that_would_choose_is_said_to_be_left_out(recwarn):
    data = Made(pair)
    for loader in (DataLoader(data), DataLoader(data, shuffle=True, drop_last=True), DataLoader(Stream(pair, 5))):
        examples_from(loader)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="sampler is not used: .*; give a torch.utils.data.Subset"):
        assert len(examples_from(DataLoader(data, sampler=SubsetRandomSampler([1, 2])))) == 6


def test_streams_are_read_to_their_end_if_they_have_one(monkeypatch):
    assert examples_from(Stream(pair, 4)).targets.tolist() == [0, 1, 0, 1]
    assert read(Stream(sequence, 4), collate=padded).take(torch.tensor([1]))[0]["ids"].tolist() == [[0, 1]]
    monkeypatch.setattr(collect, "MOST_STREAMED", 100)
    with pytest.raises(DataError, match="its first 9 items take more than"):
        examples_from(Stream(pair, 10**12))


def test_targets_of_unequal_length_are_filled_with_what_does_not_count():
    examples = read(Made(lambda number: (torch.ones(number + 1), torch.ones(number + 1).long())), pad=0)
    assert examples.take(torch.tensor([0, 1]))[1].tolist() == [[1, -100], [1, 1]]
    whole = Whole(examples, examples).aimed_at(goal_named("classes"))
    assert (whole.classes, whole.aim.gaps) == (2, True)


def doubled(items):
    return torch.ones(2), torch.ones(2)


def test_a_collate_function_that_leaves_items_out_is_refused():
    def two(items):
        kept = items[:2]
        return torch.stack([torch.from_numpy(given) for given, _ in kept]), torch.tensor([target for _, target in kept])

    examples = read(Made(pair), collate=two)
    assert len(examples.take(torch.tensor([0, 1]))[0]) == 2
    with pytest.raises(DataError, match=r"of 3 items \(at \[0\]\), but .* and each item should be one"):
        examples.take(torch.tensor([0, 1, 2]))


def broken(number):
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("data", "how", "complaint"),
    [
        (Made(sequence), {}, r"input 1 has shape \(2,\), but input 0 has \(1,\); .*pad=0, .*collate="),
        (Made(keyed), {"pad": {"ids": 0}}, r"input 1\['mask'\] has shape \(2,\), but input 0\['mask'\] has \(1,\)"),
        (Made(keyed), {"pad": {"idz": 0}}, "pad has 'idz', but the inputs are ids, mask"),
        (Made(keyed), {"pad": "zero"}, "pad is 'zero', but it should be the number"),
        (Made(keyed), {"target": "lable"}, "target is 'lable', but item 0 .* has ids, mask, label; did you mean"),
        (Made(keyed), {"inputs": ["idz"]}, "inputs has 'idz', but item 0 .* has no such key; did you mean 'ids'"),
        (Made(pair), {"target": "label"}, "target is 'label', but item 0 of the data is a tuple, which has no names"),
        (Made(lambda number: {"x": 1}), {}, "none of them is called label"),
        (Made(lambda number: {"label": 1}), {}, "has nothing but the target 'label'"),
        (Made(broken), {}, "item 0 of the data cannot be read: broken in .* raised KeyError: 'lost'"),
        (Made(lambda number: pair(number) if number < 3 else (*pair(number), 1)), {}, "item 3 of the data is not like"),
        (Made(lambda number: (torch.tensor([1.0, np.nan]), 0)), {}, "input 0 has values that are not finite"),
        (Made(lambda number: ({"a": torch.ones(1), "b": torch.tensor([np.inf if number > 2 else 1])}, 0)), {},
         r"input 3\['b'\] has values that are not finite"),
        (Made(pair), {"owners": "shop"}, "only tables have columns"),
        (Made(pair), {"tokenizer": str}, "tokenizer is a type, but a data set has no use for it"),
        (Made(sequence), {"collate": padded, "pad": 0}, "pad and collate are both given"),
        (Made(sequence), {"collate": lambda items: (torch.zeros(3), torch.zeros(1))}, r"of shape \(3,\) of 1 item"),
        (Made(pair), {"collate": doubled}, r"of shape \(2,\) of 1 item \(at \[0\]\), but .* each item should be one"),
        (({"a": np.zeros((2, 2)), "b": np.zeros(2)}, [0, 1]), {"pad": {"c": 0}}, "pad has 'c', but the inputs are a"),
        (Made(sequence), {"collate": broken}, "collate fails on 1 item: broken in .* raised KeyError: 'lost'"),
        (Made(sequence), {"collate": "default"}, "collate is 'default', but it should be a function"),
        ((np.zeros((2, 2)), [0, 1]), {"target": "price"}, r"target is 'price', but \(inputs, targets\) has no"),
    ],
)  # fmt: skip
def test_mistakes_get_a_sentence(data, how, complaint):
    with pytest.raises((DataError, ConfigError), match=complaint):
        read(data, **how)


def test_lazy_items_are_looked_at_once_and_in_every_batch(tight):
    with pytest.raises(DataError, match="input 2 has values that are not finite"):
        examples_from(Made(lambda number: (torch.tensor([np.nan if number == 2 else 1.0]), 0)))
    with pytest.raises(DataError, match=r"input 2 is torch.int64, but input 0 is torch.float32"):
        examples_from(Made(lambda number: (torch.ones(2, dtype=torch.long if number == 2 else torch.float), 0)))


@pytest.mark.parametrize("kind", [torch.uint8, torch.bool])
def test_targets_are_of_one_type_whether_or_not_a_batch_is_filled_up(tight, kind):
    lazy = read(Made(lambda number: (torch.zeros(1 + number // 2), torch.ones(1 + number // 2).to(kind))), pad=0)
    assert isinstance(lazy, Items)
    batches = [lazy.take(torch.tensor(index))[1] for index in ([0, 1], [1, 2])]
    assert [targets.tolist() for targets in batches] == [[[1], [1]], [[1, -100], [1, 1]]]
    assert {targets.dtype for targets in (*batches, lazy.made_up[1])} == {torch.int64}


def test_an_item_of_another_type_is_found_though_it_came_before_memory_was_full(monkeypatch):
    monkeypatch.setattr(collect, "MOST_BYTES", 100)  # 12 bytes of the first item, times 6; the last ones have more
    data = Made(lambda number: (torch.ones(3 + 9 * number).to(torch.long if number == 1 else torch.float), 0))
    with pytest.raises(DataError, match=r"input 1 is torch\.int64, but input 0 is torch\.float32"):
        read(data, pad=0)


@pytest.mark.parametrize(("item", "what"), [(({}, 1), "inputs"), (((), 1), "inputs"), ((torch.ones(2), {}), "labels")])
def test_an_item_of_nothing_is_refused(item, what):
    with pytest.raises(DataError, match=f"item 0 of the data has no {what}"):
        read(Made(lambda number: item))


def test_a_loader_that_leaves_batches_to_its_data_set_is_refused():
    ready = Made(lambda number: (torch.randn(4, 5), torch.arange(4)))
    for data in (ready, Stream(pair, 5)):
        with pytest.raises(DataError, match=r"batch_size=None, .* give the data set itself, if its items are single"):
            examples_from(DataLoader(data, batch_size=None))
    by_sampler = DataLoader(Made(pair), batch_sampler=BatchSampler(SequentialSampler(range(6)), 2, drop_last=False))
    assert len(examples_from(by_sampler)) == len(Made(pair))
