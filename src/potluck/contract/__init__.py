"""What Potluck expects of every method, as checks that anyone can run on theirs: `potluck check my.module:MyMethod`."""

from __future__ import annotations

from collections.abc import Iterator

from potluck.contract.checks import CHECKS
from potluck.contract.playing import ContractError
from potluck.core.errors import PotluckError
from potluck.core.method import Method

__all__ = ["CHECKS", "ContractError", "check_method"]


def check_method(method: Method) -> Iterator[tuple[str, str | None]]:
    """Every check's title, and what is wrong if it fails."""
    for title, check in CHECKS.items():
        try:
            check(method)
        except (ContractError, PotluckError) as error:
            yield title, str(error)
        except Exception as error:
            yield title, f"it breaks down with {type(error).__name__}: {error}"
        else:
            yield title, None
