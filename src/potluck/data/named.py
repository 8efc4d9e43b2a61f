"""Names that came with examples: those of classes, and those of the columns that are features."""

from __future__ import annotations

from potluck.core.data import Arrays, Examples
from potluck.core.errors import DataError

LISTED = 10  # names in an error


def require_names(one: Examples, its_name: str, other: Examples, name: str) -> None:
    """Refuse classes or features of other names than the first ones': their numbers would not mean the same."""
    if not isinstance(one, Arrays) or not isinstance(other, Arrays):
        return
    if one.names and other.names and one.names != other.names:
        raise DataError(
            f"{name} has the classes {listed(other.names)}, but {its_name} has {listed(one.names)}: their numbers "
            "would not mean the same; let both have all classes (a folder of images may have empty sub-folders), or "
            "number them yourself"
        )
    if one.features and other.features and one.features != other.features:
        raise DataError(
            f"{name} has the columns {listed(other.features)}, but {its_name} has {listed(one.features)}: the network "
            "is given them in this order; give both the same columns in the same order, or choose them with inputs="
        )


def listed(names: tuple[str, ...]) -> str:
    """Some names in an error."""
    return f"{', '.join(names[:LISTED])}{' …' if len(names) > LISTED else ''}"
