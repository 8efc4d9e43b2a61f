"""Tables in files that would fill the memory are refused for next to nothing, and nothing in a table is guessed."""

import numpy as np
import pytest

from potluck.core import machine
from potluck.core.errors import DataError
from potluck.data.own import examples, examples_from
from potluck.data.tables.read import columns_of_file

arrow = pytest.importorskip("pyarrow", reason="tables need pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

MEGABYTE = 1 << 20


@pytest.fixture
def small_machine(monkeypatch):
    """Sets the memory that this machine has."""
    return lambda megabytes: monkeypatch.setattr(machine, "memory", lambda: megabytes * MEGABYTE)


def allocated():
    """The bytes that Arrow has allocated so far, whether or not they are free again."""
    return arrow.default_memory_pool().total_bytes_allocated()


def write(path, groups=1, **columns):
    """A Parquet file with some columns, several times over."""
    table = arrow.table(columns)
    with parquet.ParquetWriter(path, table.schema, compression="zstd") as file:
        for _ in range(groups):
            file.write_table(table)
    return path


def test_a_small_file_of_many_equal_numbers_is_not_unpacked(tmp_path, small_machine):
    path = write(tmp_path / "rows.parquet", groups=20, x=np.zeros(200_000), y=np.zeros(200_000, dtype=np.int64))
    assert path.stat().st_size < MEGABYTE
    small_machine(64)
    before = allocated()
    with pytest.raises(DataError, match=r"rows\.parquet would take 0\.1 GiB of memory .* but this machine has 0\.1"):
        examples_from(str(path))
    assert allocated() - before < MEGABYTE


def test_lists_count_by_their_values(tmp_path, small_machine):
    rows = arrow.FixedSizeListArray.from_arrays(arrow.array(np.zeros(1_000_000, dtype=np.float32)), 500_000)
    path = write(tmp_path / "rows.parquet", x=rows, y=[0, 1])
    small_machine(6)
    with pytest.raises(DataError, match="would take"):
        examples_from(str(path))
    small_machine(64)
    assert examples(str(path), target="y", inputs="x").examples.inputs.shape == (2, 500_000)


@pytest.mark.parametrize("listed", [False, True])
def test_equal_texts_of_a_file_are_one_in_memory(tmp_path, listed):
    texts = arrow.array(["a" * MEGABYTE]).take(arrow.array(np.zeros(200, dtype=np.int32)))
    column = arrow.ListArray.from_arrays(arrow.array(np.arange(201, dtype=np.int32)), texts) if listed else texts
    path = write(tmp_path / "rows.parquet", text=column, y=np.zeros(200, dtype=np.int64))
    del texts, column
    before = allocated()
    cells = columns_of_file(path)["text"]
    assert len(cells) == 200
    assert len({id(cell) for cell in cells}) == 1
    assert allocated() - before < 100 * MEGABYTE  # all texts are 200
    with pytest.raises(DataError, match=r"column 'text' is (text|of type ListType), not numbers"):
        examples(str(path), target="y", inputs="text")


def test_a_csv_file_with_a_hole_is_not_read(tmp_path, small_machine):
    with (tmp_path / "rows.csv").open("wb") as file:
        file.write(b"x,y\n1,2\n")
        file.truncate(40 * MEGABYTE)
    small_machine(64)
    with pytest.raises(DataError, match=r"rows\.csv would take"):
        examples_from(str(tmp_path / "rows.csv"))


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_a_missing_category_is_not_the_last_one(tmp_path, kind):
    cells = arrow.array(["cat", "dog", None, "cat"])
    column = cells.dictionary_encode() if kind == "dictionary" else cells.cast(kind)
    path = write(tmp_path / "rows.parquet", groups=2, x=[1.0, 2.0, 3.0, 4.0], animal=column)
    assert columns_of_file(path)["animal"].tolist() == 2 * ["cat", "dog", None, "cat"]
    with pytest.raises(DataError, match="column 'animal' has no value in row 2"):
        examples(str(path), target="animal")


def test_a_name_that_no_file_can_have_is_one_sentence():
    with pytest.raises(DataError, match=r"cannot read a+\.csv as a table: "):
        examples_from(f"{'a' * 5000}.csv")


def test_an_error_lists_some_of_a_great_many_columns(tmp_path):
    names = [f"column{number}" for number in range(5000)]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(names), *[",".join(["1"] * 5000)] * 2]))
    with pytest.raises(DataError, match=r"has column0, column1, .* … and 4,8\d\d more, and none of them is") as caught:
        examples_from(str(tmp_path / "rows.csv"))
    assert len(str(caught.value)) < 3000
    with pytest.raises(DataError) as caught:
        examples(str(tmp_path / "rows.csv"), target="colunm7")
    assert len(str(caught.value)) < 3000
    with pytest.raises(DataError) as caught:
        examples(str(tmp_path / "rows.csv"), target="column7", inputs=["elsewhere"])
    assert len(str(caught.value)) < 3000
