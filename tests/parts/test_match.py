"""Names of layers and blocks: what they stand for, which one wins, and which are refused."""

from __future__ import annotations

import pytest

from potluck.core.errors import ModelError
from potluck.parts.match import check_names, setting_for

LAYERS = ["stem", "body.0.conv", "body.1", "body.10"]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"whole": ["body"]}, [None, "whole", "whole", "whole"]),
        ({"whole": ["body.1"]}, [None, None, "whole", None]),
        ({"whole": [""]}, ["whole"] * 4),
        ({"whole": ["body"], "factor": ["body.0"]}, [None, "factor", "whole", "whole"]),
        ({"whole": ["body.0.conv"], "factor": ["body"]}, [None, "whole", "factor", "factor"]),
        ({"whole": ["body"], "factor": ["body"]}, [None, "whole", "whole", "whole"]),
        ({"factor": ["body"], "whole": ["body"]}, [None, "factor", "factor", "factor"]),
        ({"whole": [], "factor": ["", "body.1"], "adapt": ["body"]}, ["factor", "adapt", "factor", "adapt"]),
    ],
)
def test_the_most_specific_name_wins_and_the_first_setting_a_tie(
    named: dict[str, list[str]], expected: list[str | None]
) -> None:
    assert [setting_for(layer, named) for layer in LAYERS] == expected


def test_a_name_of_nothing_is_refused_with_its_setting_and_the_probable_name() -> None:
    known = ["body", "body.0", "stem"]
    check_names({"whole": ["body", ""], "factor": ["stem"]}, known)
    with pytest.raises(ModelError, match=r"^factor: there is no layer or block 'bodi'; did you mean 'body'\?$"):
        check_names({"whole": ["body"], "factor": ["bodi"]}, known)
    with pytest.raises(ModelError, match=r"^keep: there is no tensor 'zzz'; there are body, body.0, stem$"):
        check_names({"keep": ["zzz"]}, known, "tensor")
