"""The user's own data in every form it may come."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import potluck
from potluck.core.data import Arrays
from potluck.core.errors import ConfigError, DataError
from potluck.core.goals.named import goal_named
from potluck.data.dataset import Dataset as Potluckset
from potluck.data.own import examples_from
from potluck.data.sources.windows import Windows


def test_arrays_of_bytes_become_floats_between_0_and_1():
    examples = examples_from((np.full((3, 1, 2, 2), 255, np.uint8), np.array([0, 2, 1], np.uint16)))
    inputs, targets = examples.take(torch.arange(3))
    assert torch.equal(inputs, torch.ones(3, 1, 2, 2))
    assert (targets.tolist(), targets.dtype) == ([0, 2, 1], torch.long)
    assert examples.inputs.dtype == torch.uint8


@pytest.mark.parametrize(
    ("given_type", "expected"),
    [(np.float64, torch.float32), (np.float16, torch.float32), (">f4", torch.float32), (np.int32, torch.long)],
)
def test_other_types_become_what_networks_use(given_type, expected):
    examples = examples_from((np.arange(6).reshape(3, 2).astype(given_type), [0, 1, 0]))
    assert examples.inputs.dtype == expected
    assert examples.inputs.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_reversed_arrays_are_read_in_their_order():
    assert examples_from((np.arange(3.0)[::-1], torch.tensor([0, 1, 2]))).inputs.tolist() == [2, 1, 0]


def test_lists_of_numbers_are_arrays():
    """A pair of lists is inputs and targets, not two items."""
    for inputs in ([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], np.array([[1.0, True], [3, 4]], dtype=object)):
        examples = examples_from((inputs, [0, 1]))
        assert examples.inputs.tolist() == np.array(inputs, float).tolist()
        assert examples.targets.tolist() == [0, 1]


@pytest.mark.parametrize(
    "rows", [list, lambda rows: np.array(rows, dtype=object), lambda rows: [r.tolist() for r in rows]]
)
def test_recordings_of_unequal_length_are_filled_up(rows):
    recordings = [np.arange(count, dtype=np.float32) + 1 for count in (3, 1, 2)]
    given = potluck.examples((rows(recordings), [0, 1, 0]), pad=-1)
    assert given.examples.take(torch.tensor([1, 2]))[0].tolist() == [[1, -1], [1, 2]]


def test_lists_of_unequal_length_are_filled_up_by_name_also_inside_other_inputs():
    ids = [[1, 2, 3], [4], [5, 6]]
    given = potluck.examples(({"text": {"ids": ids}, "mask": ids}, [0, 1, 0]), pad={"ids": 9, "mask": 0})
    inputs, _ = given.examples.take(torch.tensor([1, 2]))
    assert (inputs["text"]["ids"].tolist(), inputs["mask"].tolist()) == ([[4, 9], [5, 6]], [[4, 0], [5, 6]])
    with pytest.raises(ConfigError, match="pad has 'text', but the inputs are ids, mask"):
        potluck.examples(({"text": {"ids": ids}, "mask": ids}, [0, 1, 0]), pad={"text": 9})


def test_nested_inputs_keep_their_form():
    tree = {"image": np.zeros((2, 3), np.uint8), "more": {"size": [1.0, 2.0], "both": (np.ones(2), np.zeros((2, 1)))}}
    inputs, _ = examples_from((tree, [0, 1])).take(torch.tensor([1]))
    assert inputs["image"].dtype is torch.float32
    assert (inputs["more"]["size"].tolist(), inputs["more"]["both"][1].shape) == ([2.0], (1, 1))


def test_the_users_array_is_copied_not_shared():
    array = np.zeros((2, 2), np.float32)
    examples = examples_from((array, np.array([0, 1])))
    array[:] = 9
    assert float(examples.inputs.sum()) == 0


def test_arrays_are_taken_as_they_are():
    arrays = Arrays(torch.zeros(2, 3), torch.tensor([0, 1]))
    assert examples_from(arrays) is arrays


def test_other_examples_are_taken_once():
    examples = examples_from(Windows(torch.arange(10), torch.tensor([0, 4]), 3))
    assert examples.inputs.tolist() == [[0, 1, 2], [4, 5, 6]]
    assert examples.targets.tolist() == [3, 7]


class Squares(Dataset):
    """Pairs of an array and a plain number."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.full((1, 2, 2), index**2, np.float64), index % 2


def test_torch_data_sets_are_stacked():
    examples = examples_from(Squares())
    assert examples.inputs.shape == (4, 1, 2, 2)
    assert examples.inputs[:, 0, 0, 0].tolist() == [0, 1, 4, 9]
    assert examples.targets.tolist() == [0, 1, 0, 1]
    again = examples_from(TensorDataset(torch.arange(6).view(3, 2).float(), torch.tensor([2, 1, 0])))
    assert (again.inputs.tolist(), again.targets.tolist()) == ([[0, 1], [2, 3], [4, 5]], [2, 1, 0])


class Columns:
    """What is used of a Hugging Face data set."""

    def __init__(self, names, rows, kind=None):
        self.column_names, self.rows, self.format = names, rows, {"type": kind, "columns": list(names)}

    def __len__(self):
        return 2

    def with_format(self, kind, columns):
        return Columns(columns, self.rows, kind)

    def __getitem__(self, key):
        assert (self.format["type"], key) == ("torch", slice(None))
        return self.rows


def test_hugging_face_data_sets_by_their_columns():
    rows = {"image": torch.zeros(2, 1, 3, 3, dtype=torch.uint8), "label": torch.tensor([1, 0])}
    examples = examples_from(Columns(["image", "label"], rows))
    assert examples.inputs.shape == (2, 1, 3, 3)
    assert examples.targets.tolist() == [1, 0]


def test_hugging_face_rows_in_a_list_are_stacked_or_refused():
    good = {"x": [torch.zeros(3), torch.ones(3)], "label": torch.tensor([1, 0])}
    assert examples_from(Columns(["x", "label"], good)).inputs.tolist() == [[0, 0, 0], [1, 1, 1]]
    bad = {"x": [torch.zeros(3), torch.ones(2)], "label": torch.tensor([1, 0])}
    with pytest.raises(DataError, match=r"'x' 1 has shape \(2,\), but 'x' 0 has \(3,\)"):
        examples_from(Columns(["x", "label"], bad))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (["text", "idx", "label"], "column 'text' is text, not numbers; give a tokenizer with tokenizer="),
        (["a", "b"], "has a, b, and none of them is called label, labels, .* say with target="),
        (["label"], "the data set has no column that could be an input beside label"),
        (["a", "label", "y"], "2 of them are called label"),
    ],
)
def test_hugging_face_columns_that_are_not_understood(columns, complaint):
    rows = {name: ["some", "text"] if name == "text" else torch.tensor([0, 1]) for name in columns}
    with pytest.raises(DataError, match=complaint):
        examples_from(Columns(columns, rows))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ((np.zeros((3, 2)), np.zeros(2, int)), r"inputs of shape \(3, 2\) but targets of shape \(2,\)"),
        ((np.zeros((0, 2)), np.zeros(0, int)), "there are no examples"),
        (
            (np.zeros((2, 2)), np.array(["cat", "dog"])),
            "targets has text, but it should have numbers: number",
        ),
        ([], "the data set is empty"),
        ([1, 2], "item 0 of the data is a int, not an"),
        ([np.zeros((2, 2)), np.zeros(2)], r"data is a list of 2 arrays, but it should be \(inputs, targets\)"),
        ((np.zeros(2), np.zeros(2), np.zeros(2)), r"data is a tuple of 3 arrays, .* as in \(\(x, z\), targets\)"),
        (
            (np.zeros((2, 2), complex), [0, 1]),
            "inputs is a complex array; make it real, with the two parts as channels",
        ),
        ((torch.zeros(2, 2, dtype=torch.complex64), [0, 1]), "inputs is a complex tensor"),
        ((torch.zeros(2, 2).to_sparse(), [0, 1]), r"inputs is a sparse tensor; make it dense with to_dense\(\)"),
        (
            (torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged), [0, 1]),
            "inputs is a nested tensor; make it a list",
        ),
        ((np.ma.masked_array([[1.0], [2.0]], [[0], [1]]), [0, 1]), "inputs is an array with masked values"),
        ((np.array([2**63, 1], np.uint64), [0, 1]), "inputs has the number 9223372036854775808, but"),
        ((np.array([1, None]), [0, 1]), "inputs is a ndarray, which is not an array of numbers"),
        ((np.array(["2020", "2021"], "M8[Y]"), [0, 1]), "inputs is a ndarray, which is not an array of numbers"),
        (([[1.0, 2.0], [3.0]], [0, 1]), r"'inputs' 1 has shape \(1,\), but 'inputs' 0 has \(2,\).*pad=0"),
        (
            ({"x": np.zeros((2, 2)), "z": np.zeros((3, 2))}, [0, 1]),
            r"inputs of shape \['x'\] \(2, 2\), \['z'\] \(3, 2\)",
        ),
        ([(1,)], "item 0 of the data is a tuple of 1, not an"),
        ([(np.zeros(2), 0), (np.zeros(3), 1)], r"input 1 has shape \(3,\), but input 0 has \(2,\)"),
        ([(np.zeros(2), 0), (np.zeros(2), "cat")], "label 1 has text, but it should have numbers"),
        ([(np.zeros(2), 0), (None, 1)], "input 1 is a NoneType"),
        (3, r"data is a int; it can be \(inputs, targets\)"),
        ((x for x in range(3)), "data is a generator; it can be"),
    ],
)
def test_what_cannot_be_used_is_explained(data, complaint):
    with pytest.raises(DataError, match=complaint):
        examples_from(data)


@pytest.mark.parametrize(
    ("targets", "complaint"),
    [
        (np.array([0.0, 1.0]), "labels are float64, not whole numbers"),
        (np.array([True, False]), "labels are bool, not whole numbers"),
        (np.array([0, -1]), "label -1 is negative"),
        (torch.tensor([0.5, 1]), "labels are float32, not whole numbers"),
    ],
)
def test_targets_are_read_as_they_are_and_checked_by_the_goal(targets, complaint):
    examples = examples_from((np.zeros((2, 2)), targets))
    assert examples.targets.tolist() == targets.tolist()
    with pytest.raises(DataError, match=complaint):
        Potluckset(examples, examples).aimed_at(goal_named("classes"))


def test_hugging_face_splits_are_passed_one_at_a_time():
    with pytest.raises(DataError, match=r"has splits train, test; pass one of them, such as data\['train'\]"):
        examples_from(Columns({"train": ["x", "label"], "test": ["x", "label"]}, {}))


def write_images(folder, **modes: str):
    """One class per name; its image is 4x3 pixels of value 50."""
    image = pytest.importorskip("PIL.Image", reason="image folders need Pillow")
    for name, mode in modes.items():
        (folder / name).mkdir(parents=True)
        image.new(mode, (4, 3), 50 if mode == "L" else (50, 50, 50)).save(folder / name / "a.png")
        (folder / name / "notes.txt").write_text("not an image")
    return folder


def test_folder_of_grey_images(tmp_path):
    examples = examples_from(write_images(tmp_path, dogs="L", cats="L"))
    assert examples.inputs.shape == (2, 1, 3, 4)
    assert examples.targets.tolist() == [0, 1]
    assert float(examples.take(torch.tensor([0]))[0].max()) == pytest.approx(50 / 255)


def test_grey_images_among_coloured_ones_get_three_channels(tmp_path):
    examples = examples_from(str(write_images(tmp_path, a="L", b="RGB", c="L")))
    assert examples.inputs.shape == (3, 3, 3, 4)
    assert bool((examples.inputs == 50).all())


def test_images_of_different_size_are_named(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="image folders need Pillow")
    write_images(tmp_path, a="L")
    image.new("L", (5, 5)).save(tmp_path / "a" / "b.png")
    with pytest.raises(DataError, match=r"b\.png is 5x5 pixels, but .*a\.png is 4x3"):
        examples_from(tmp_path)


def test_pillow_images_in_a_data_set(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="image folders need Pillow")
    pairs = [(image.new("RGB", (4, 3), (1, 2, 3)), 0), (image.new("RGB", (4, 3)), 1)]
    examples = examples_from(pairs)
    assert examples.inputs.shape == (2, 3, 3, 4)
    assert examples.inputs[0, :, 0, 0].tolist() == [1, 2, 3]


def test_folders_without_images_are_named(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path} holds no images"):
        examples_from(tmp_path)
    with pytest.raises(DataError, match=f"there is no folder {tmp_path / 'missing'}"):
        examples_from(tmp_path / "missing")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_inputs_that_are_not_finite_as_float32_are_named(value):
    inputs = np.zeros((4, 3))
    inputs[2, 1] = value
    with pytest.raises(DataError, match="input 2 has values that are not finite"):
        examples_from((inputs, [0, 1, 0, 1]))
