"""Frames, files and Hugging Face data sets by their columns."""

import sys

import pytest
import torch

import potluck
from potluck.core.errors import ConfigError, DataError
from potluck.data.columns.ragged import Ragged
from potluck.data.own import examples_from

ROWS = {"a": [1.5, 2.5, 4.0], "b": [1, 2, 3], "c": [True, False, True], "shop": ["x", "y", "x"], "price": [5, 6, 7]}


def pandas_frame(rows):
    return pytest.importorskip("pandas").DataFrame(rows)


def polars_frame(rows):
    return pytest.importorskip("polars").DataFrame(rows)


def hugging_face(rows):
    return pytest.importorskip("datasets").Dataset.from_dict(rows)


@pytest.fixture
def in_file(tmp_path):
    """Writes a table to a file of this kind, and gives its path."""
    arrow = pytest.importorskip("pyarrow")
    csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")

    def write(rows, kind):
        path = tmp_path / f"rows.{kind}"
        (csv.write_csv if kind == "csv" else parquet.write_table)(arrow.table(rows), path)
        return path

    return write


KINDS = ["pandas", "polars", "hugging face", "csv", "parquet"]


@pytest.fixture(params=KINDS)
def table(request, in_file):
    """Makes a table of this kind."""
    makers = {"pandas": pandas_frame, "polars": polars_frame, "hugging face": hugging_face}
    kind = request.param
    return makers[kind] if kind in makers else lambda rows: str(in_file(rows, kind))


def read(data, **how):
    return potluck.examples(data, **how).examples


def test_numbers_are_features_in_the_order_of_the_table(table):
    given = potluck.examples(table(ROWS), target="price", owners="shop")
    assert given.examples.inputs.dtype is torch.float32
    assert given.examples.inputs.tolist() == [[1.5, 1, 1], [2.5, 2, 0], [4, 3, 1]]
    assert (given.examples.targets.tolist(), list(given.owners)) == ([5, 6, 7], ["x", "y", "x"])


def test_inputs_are_chosen_and_ordered(table):
    data = table(ROWS)
    assert read(data, target="price", inputs=["b", "a"]).inputs.tolist() == [[1, 1.5], [2, 2.5], [3, 4]]
    by_name = read(data, target=["price", "a"], inputs={"ids": "b", "x": ["a", "c"]})
    assert by_name.inputs["ids"].tolist() == [1, 2, 3]
    assert by_name.inputs["ids"].dtype is torch.long
    assert by_name.inputs["x"].shape == (3, 2)
    assert by_name.targets.tolist() == [[5, 1.5], [6, 2.5], [7, 4]]


def test_classes_by_name_are_numbered_in_the_order_of_names(table):
    rows = {"x": [1.0, 2.0, 3.0], "label": ["dog", "cat", "dog"]}
    examples = examples_from(table(rows))
    assert (examples.targets.tolist(), examples.names) == ([1, 0, 1], ("cat", "dog"))


def test_owners_may_be_numbers(table):
    rows = {"x": [1.0, 2.0], "y": [0, 1], "who": [7, 9]}
    assert list(potluck.examples(table(rows), owners="who").owners) == [7, 9]
    assert examples_from(table({"x": [1.0, 2.0], "y": [0, 1]})).targets.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["pandas", "polars", "hugging face", "parquet"])
def test_lists_of_unequal_length(kind, in_file):
    rows = {"ids": [[1, 2], [3]], "tags": [[0, 1], [1]], "label": [0, 1]}
    makers = {"pandas": pandas_frame, "polars": polars_frame, "hugging face": hugging_face}
    data = in_file(rows, kind) if kind == "parquet" else makers[kind](rows)
    examples = read(data, target="tags", inputs={"input_ids": "ids"}, pad={"input_ids": 9})
    inputs, targets = examples.take(torch.tensor([0, 1]))
    assert isinstance(examples.inputs["input_ids"], Ragged)
    assert (inputs["input_ids"].tolist(), targets.tolist()) == ([[1, 2], [3, 9]], [[0, 1], [1, -100]])
    with pytest.raises(DataError, match=r"'ids' 1 has shape \(1,\), but 'ids' 0 has \(2,\).*pad="):
        read(data, inputs=["ids"])


class Tokenizer:
    """Letters to numbers, as transformers would."""

    pad_token_id = 99

    def __init__(self):
        self.calls = []

    def __call__(self, texts, pairs=None, *, truncation):
        assert truncation
        self.calls.append(len(texts))
        both = [text + (pairs[at] if pairs else "") for at, text in enumerate(texts)]
        ids = [[ord(letter) for letter in text[:5]] for text in both]
        return {"input_ids": ids, "attention_mask": [[1] * len(each) for each in ids]}


def test_text_is_tokenised_and_filled_up_batch_by_batch(table):
    rows = {"text": ["ab", "abcdefg"], "idx": [0, 1], "label": [0, 1]}
    inputs, _ = read(table(rows), tokenizer=Tokenizer()).take(torch.tensor([0, 1]))
    assert inputs["input_ids"].tolist() == [[97, 98, 99, 99, 99], [97, 98, 99, 100, 101]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 0, 0, 0], [1] * 5]
    other = read(table(rows), tokenizer=Tokenizer(), inputs="text", pad={"input_ids": 1}).take(torch.tensor([0, 1]))
    assert other[0]["input_ids"][0].tolist() == [97, 98, 1, 1, 1]
    assert read(table(rows), tokenizer=Tokenizer()).take(torch.tensor([0]))[0]["input_ids"].shape == (1, 2)


def test_texts_are_tokenised_in_chunks_and_in_pairs():
    tokenizer = Tokenizer()
    rows = {"one": ["a"] * 2500, "two": ["b"] * 2500, "label": [0] * 2500}
    examples = read(pandas_frame(rows), tokenizer=tokenizer, inputs=["one", "two"])
    assert tokenizer.calls == [1000, 1000, 500]
    assert examples.take(torch.tensor([2400]))[0]["input_ids"].tolist() == [[97, 98]]
    with pytest.raises(DataError, match="the columns one, two are text; say with inputs= what to tokenise"):
        read(pandas_frame(rows), tokenizer=tokenizer)
    with pytest.raises(DataError, match="tokenizer returns a list of 1000"):
        read(pandas_frame(rows), tokenizer=lambda texts, truncation: texts, inputs="one")


def test_real_tokenizers_are_of_that_kind(tmp_path):
    transformers = pytest.importorskip("transformers")
    words = tmp_path / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]))
    tokenizer = transformers.BertTokenizer(str(words))
    examples = read(hugging_face({"text": ["good film", "bad"], "label": [1, 0]}), tokenizer=tokenizer)
    inputs, _ = examples.take(torch.tensor([0, 1]))
    assert inputs["input_ids"].shape == (2, 4)
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert int(inputs["input_ids"][1, 3]) == tokenizer.pad_token_id


@pytest.mark.parametrize(
    ("rows", "how", "complaint"),
    [
        (ROWS, {}, "has a, b, c, shop, price, and none of them is called label"),
        (ROWS, {"target": "prize"}, "target is 'prize', but .* has a, b, c, shop, price; did you mean 'price'"),
        (ROWS, {"target": ["price", "cost"]}, "target has 'cost', but .* has no such column"),
        (ROWS, {"target": "price"}, "column 'shop' is text, not numbers; .*leave it out with inputs=.*get_dummies"),
        (ROWS, {"target": "price", "inputs": ["shop"]}, "column 'shop' is text"),
        (ROWS, {"target": "price", "inputs": ["d"]}, "inputs has 'd', but .* has no such column"),
        (ROWS, {"target": "price", "owners": "store"}, "owners has 'store', but .* has no such column"),
        ({"x": [1.0, None], "y": [0, 1]}, {}, "column 'x' has no value in row 1"),
        ({"x": [1, 2], "y": [0, None]}, {}, "column 'y' has no value in row 1"),
        ({"x": [1, 2], "y": ["cat", None]}, {}, "column 'y' has no value in row 1"),
        ({"x": [1, 2], "y": [0, 1], "who": ["a", None]}, {"owners": "who"}, "column 'who' has .* in row 1"),
        ({"x": [1, 2], "y": [0, 1], "who": ["a", ""]}, {"owners": "who"}, "column 'who' has .* in row 1"),
        ({"x": [1.0, float("inf")], "y": [0, 1]}, {}, "column 'x' has inf in row 1"),
        ({"x": [], "y": []}, {}, "has no rows"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["pandas", "polars", "csv"])
def test_mistakes_get_a_sentence(kind, rows, how, complaint, in_file):
    makers = {"pandas": pandas_frame, "polars": polars_frame}
    data = makers[kind](rows) if kind in makers else in_file(rows, kind)
    with pytest.raises((DataError, ConfigError), match=complaint):
        read(data, **how)


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_a_csv_file_without_commas_is_told_so(mark, name, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "houses.csv").write_text(f"rooms{mark}label\n3{mark}1\n2{mark}0\n")
    with pytest.raises(DataError, match=f"houses.csv has one column, .* separated by commas, not by {name}$"):
        read(tmp_path / "houses.csv")


def test_frames_have_more_kinds_of_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": pandas.array([1, 2], "Int64"), "y": [0, 1]})
    assert examples_from(frame).inputs.tolist() == [[1], [2]]
    frame["x"] = pandas.array([1, None], "Int64")
    with pytest.raises(DataError, match="column 'x' has no value in row 1"):
        examples_from(frame)
    frame["x"] = pandas.Categorical(["a", "b"])
    with pytest.raises(DataError, match="column 'x' is text"):
        examples_from(frame)
    frame["x"] = pandas.to_datetime(["2020-01-01", "2020-01-02"])
    with pytest.raises(DataError, match=r"column 'x' is datetime64.*, not numbers; leave it out"):
        examples_from(frame)


@pytest.mark.parametrize("kind", ["string", "boolean", "Float64", "category"])
def test_gaps_in_columns_of_pandas_own_kinds(kind):
    pandas = pytest.importorskip("pandas")
    cells = {"string": ["a", None], "boolean": [True, None], "Float64": [1.5, None], "category": ["a", None]}[kind]
    name = "y" if kind in ("string", "category") else "x"
    frame = pandas.DataFrame({"x": [1.0, 2.0], "y": [0, 1]}).assign(**{name: pandas.array(cells, kind)})
    with pytest.raises(DataError, match=f"column '{name}' has no value in row 1"):
        examples_from(frame)


def test_columns_of_pandas_own_kinds_without_gaps():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "x": pandas.array([True, False], "boolean"),
            "z": pandas.array([1, 2], "int8[pyarrow]"),
            "y": pandas.Categorical(["lo", "hi"], categories=["lo", "hi"], ordered=True),
        },
        index=["first", "first"],
    )
    examples = examples_from(frame)
    assert (examples.inputs.tolist(), examples.targets.tolist()) == ([[1, 1], [0, 2]], [1, 0])


def test_pairs_of_frames_and_series():
    pandas = pytest.importorskip("pandas")
    inputs = pandas.DataFrame({"a": [1.0, 2.0], "b": [True, False]}, index=[7, 3])
    assert examples_from((inputs, pandas.Series([0, 1]))).inputs.tolist() == [[1, 1], [2, 0]]
    polars = pytest.importorskip("polars")
    assert examples_from((polars.DataFrame({"a": [1.0, 2.0]}), polars.Series([0, 1]))).inputs.tolist() == [[1], [2]]


def test_polars_has_more_kinds_of_columns():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": ["1.50", "2.00"], "y": ["b", "a"]})
    frame = frame.with_columns(polars.col("x").cast(polars.Decimal(10, 2)), polars.col("y").cast(polars.Categorical))
    examples = examples_from(frame)
    assert (examples.inputs.tolist(), examples.names) == ([[1.5], [2]], ("a", "b"))
    with pytest.raises(DataError, match=r"column 'x' is datetime64.*, not numbers"):
        examples_from(frame.with_columns(polars.date(2020, 1, 1).alias("x")))


@pytest.mark.parametrize("kind", ["pandas", "polars", "hugging face", "parquet"])
def test_lists_of_lists_are_arrays(kind, in_file):
    rows = {"x": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "label": [0, 1]}
    makers = {"pandas": pandas_frame, "polars": polars_frame, "hugging face": hugging_face}
    data = in_file(rows, kind) if kind == "parquet" else makers[kind](rows)
    assert read(data, inputs="x").inputs.tolist() == rows["x"]


def test_lists_with_gaps_or_of_no_length(in_file):
    examples = read(in_file({"x": [[1, 2], []], "label": [0, 1]}, "parquet"), inputs="x", pad=9)
    assert examples.take(torch.tensor([0, 1]))[0].tolist() == [[1, 2], [9, 9]]
    with pytest.raises(DataError, match="column 'x' has no value in row 1"):
        read(in_file({"x": [[1, 2], None], "label": [0, 1]}, "parquet"), inputs="x", pad=9)
    with pytest.raises(DataError, match="input 0 has values that are not finite"):
        read(in_file({"x": [[1, None], [3]], "label": [0, 1]}, "parquet"), inputs="x", pad=9)


def test_text_in_quotes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"one, ""two""",yes\n,no\n')
    lengths = []
    examples = read(path, tokenizer=lambda texts, truncation: {"ids": [[lengths.append(text) or 1] for text in texts]})
    assert (lengths, examples.names) == (['one, "two"', ""], ("no", "yes"))
    path.write_text("text,label\n12,0\n13,1\n")
    with pytest.raises(DataError, match=r"column 'text' has a int64 in row 0 .*, but text is needed in each"):
        read(path, tokenizer=Tokenizer(), inputs="text")


def test_text_that_is_not_utf_8(tmp_path):
    (tmp_path / "a.csv").write_bytes("x,label\n1,caf\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"column 'label' of .* is not UTF-8; save the file as UTF-8"):
        examples_from(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("tokenizer", "complaint"),
    [
        (lambda texts: texts, "tokenizer fails on a list of texts and truncation=True, as .*: TypeError"),
        (lambda texts, truncation: texts[99], "tokenizer fails on .*: <lambda> in .* raised IndexError"),
        (
            lambda texts, truncation: {"ids": [["a"]] * 2},
            "what tokenizer returns as 'ids' has text, but it should have numbers",
        ),
        (lambda texts, truncation: {"ids": [3, 4]}, "tokenizer returns one number as 'ids' for a text"),
        (lambda texts, truncation: {"ids": [[3]]}, "tokenizer gives 1 'ids' for 2 texts"),
    ],
)
def test_tokenizers_that_are_none(tokenizer, complaint):
    with pytest.raises(DataError, match=complaint):
        read(pandas_frame({"text": ["a", "b"], "label": [0, 1]}), tokenizer=tokenizer)


def test_tokenizers_may_give_floats():
    frame = pandas_frame({"text": ["a", "b"], "label": [0, 1]})
    found = read(frame, tokenizer=lambda texts, truncation: {"f": [[0.5], [1.5, 2]]}).take(torch.tensor([0, 1]))[0]
    assert found["f"].tolist() == [[0.5, 0], [1.5, 2]]


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="there is no file"):
        examples_from(tmp_path / "missing.csv")
    (tmp_path / "a.parquet").write_bytes(b"no table")
    with pytest.raises(DataError, match=r"cannot read .*a\.parquet as a table"):
        examples_from(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs pyarrow: pip install 'potluck\[tables\]'"):
        examples_from(tmp_path / "a.parquet")
