"""Tables as text: what is special in a format is escaped."""

import csv
import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.series.text import Sheet, as_csv, as_json, as_latex, as_markdown, latex

ROWS = ({"group": 'lr=0.1, "a"', "last": 0.1, "deviation": 0.25}, {"group": "b\nc", "last": None})
SHEET = Sheet(("", "last"), (("a_b", "91.2 ± 0.3 %"), ("x|y & z", "-")), ROWS)
SPECIAL = r"\~^&%$#_{}"
UNESCAPED = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    **{f"\\{letter}": letter for letter in "&%$#_{}"},
}


def read_latex(text):
    """The text that LaTeX prints, read letter by letter."""
    found, at = "", 0
    while at < len(text):
        command = next((each for each in UNESCAPED if text.startswith(each, at)), None)
        assert command or text[at] not in SPECIAL, text
        found += UNESCAPED[command] if command else text[at]
        at += len(command or "x")
    return found


@given(st.text(st.sampled_from(SPECIAL + "ab 1"), max_size=12))
def test_latex_prints_what_was_written(text):
    assert read_latex(latex(text)) == text


def test_notes_stand_below_a_table():
    noted = replace(SHEET, notes=("[1] 5 % off",))
    assert as_latex(noted) == as_latex(SHEET) + "\n" + r"\par [1] 5 \% off"
    assert as_markdown(noted) == as_markdown(SHEET) + "\n\n[1] 5 % off"


def test_a_latex_table_is_whole():
    assert as_latex(SHEET).splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r" & last \\",
        r"\midrule",
        r"a\_b & 91.2 $\pm$ 0.3 \% \\",
        r"x|y \& z & - \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_gives_back_names_with_commas_quotes_and_lines():
    found = list(csv.DictReader(io.StringIO(as_csv(SHEET))))
    assert [row["group"] for row in found] == [row["group"] for row in ROWS]
    assert [row["last"] for row in found] == ["0.1", ""]
    assert [row["deviation"] for row in found] == ["0.25", ""]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1), min_size=1, max_size=5))
def test_csv_gives_back_any_text(texts):
    sheet = Sheet((), (), tuple({"text": text} for text in texts))
    assert [row["text"] for row in csv.DictReader(io.StringIO(as_csv(sheet), newline=""))] == texts


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_has_no_numbers_that_json_does_not_know(value):
    def refuse(name):
        raise AssertionError(name)

    sheet = Sheet((), (), ({"last": value, "group": "a"},))
    assert json.loads(as_json(sheet), parse_constant=refuse) == [{"last": None, "group": "a"}]


def test_json_is_the_list_of_rows():
    assert json.loads(as_json(SHEET)) == list(ROWS)


def test_markdown_has_a_line_per_row():
    assert as_markdown(SHEET).splitlines() == [
        "|  | last |",
        "| --- | --- |",
        "| a_b | 91.2 ± 0.3 % |",
        r"| x\|y & z | - |",
    ]
