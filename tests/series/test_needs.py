"""What many runs need is asked for only where a run is still to be played."""

from pathlib import Path

import pytest

from potluck.core.errors import DataError
from potluck.series.entry import Entry, Stage
from potluck.series.needs import require_needs


def test_the_data_of_finished_runs_need_not_be_there(tmp_path):
    table = {"task": {"model": "heterofl-cnn"}, "data": {"source": "mnist"}}
    finished, left = (Stage(Entry("run", table), Path("run"), done, 2, done == 2) for done in (2, 1))
    require_needs([finished], tmp_path)
    with pytest.raises(DataError, match="mnist was not found"):
        require_needs([finished, left], tmp_path)
