"""Every method that comes with Potluck, against every check."""

import pytest

from potluck import methods
from potluck.contract import CHECKS


@pytest.mark.parametrize("title", CHECKS)
@pytest.mark.parametrize("name", methods.names())
def test_method_keeps_the_contract(name, title):
    CHECKS[title](methods.find(name)())
