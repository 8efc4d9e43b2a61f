"""Reading a table of settings into a dataclass, with errors that name the place, the value and what would be right."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from potluck.core.errors import ConfigError
from potluck.core.plug import hint

Schema = TypeVar("Schema")
Table = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where settings came from, so that an error can point there."""

    file: Path | None = None
    text: str = ""
    overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)  # key to text, from the command line

    def place(self, section: str, key: str) -> str:
        """` (file:line)` of a key, or what else is known of its origin."""
        dotted = f"{section}.{key}" if section else key
        if any(dotted == override or override.startswith(f"{dotted}.") for override in self.overrides):
            return f" (--set {dotted})"
        if self.file is None:
            return ""
        line = find_line(self.text, section, key)
        return f" ({self.file}:{line})" if line else f" ({self.file})"


def find_line(text: str, section: str, key: str) -> int | None:
    """The number of the line in which a section sets a key."""
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[([^\]]+)\]", line):
            current = header[1].strip()
        if current == section and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
        if header and f"{section}.{key}".strip(".") == current:
            return number
    return None


def fields_of(schema: type[Any]) -> list[str]:
    """The keys a table of this schema may have."""
    return [field.name for field in dataclasses.fields(schema) if field.init]


def unknown_key(section: str, owner: str, key: str, known: list[str], origin: Origin) -> ConfigError:
    """The error for a key that nothing reads."""
    return ConfigError(f"{subject(section, owner)} has no '{key}'; {hint(key, known)}{origin.place(section, key)}")


def subject(section: str, owner: str) -> str:
    """Whose settings are spoken of: a section's, or those of what it names."""
    return f"[{section}] {owner}".strip() if section else owner


def read_table(schema: type[Schema], table: Mapping[str, Any], section: str, owner: str, origin: Origin) -> Schema:
    """A dataclass from a table of settings: no unknown keys, no silent conversions, ranges checked."""
    known = fields_of(schema)
    for key in table:
        if key not in known:
            raise unknown_key(section, owner, key, known, origin)
    try:
        return validated(schema, table)
    except ValidationError as error:
        wrong = {str(each["loc"][0]) for each in error.errors() if each["loc"]}
        texts = {key: origin.overrides.get(f"{section}.{key}") for key in wrong}
        try:  # `--set method.masking=-inf` is a number in TOML, but may be meant as the word it is
            return validated(schema, {**table, **{key: text for key, text in texts.items() if text is not None}})
        except ValidationError:
            raise explain(error, table, section, owner, origin) from error


def validated(schema: type[Schema], table: Mapping[str, Any]) -> Schema:
    """Strict validation; as JSON, because an array is then taken for a tuple, and TOML has no tuples."""
    return TypeAdapter(schema).validate_json(json.dumps(table, default=str), strict=True)


def explain(error: ValidationError, table: Mapping[str, Any], section: str, owner: str, origin: Origin) -> ConfigError:
    """The first thing wrong with a table, as a sentence; of a setting with several forms, what each would be."""
    first = error.errors()[0]
    path = real_path(first["loc"], table)
    key = path[0] if path else str(first["loc"][0]) if first["loc"] else ""
    where = f"[{section}] " if section else ""
    if first["type"] == "missing":
        return ConfigError(f"{subject(section, owner)} needs '{key}'{origin.place(section, '')}")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):  # a check that is spoken of in our own words
        return ConfigError(f"{where}{cause}{origin.place(section, key)}")
    alike = [other["msg"] for other in error.errors() if real_path(other["loc"], table) == path]
    wanted = " or ".join(dict.fromkeys(message.removeprefix("Input should be ") for message in alike))
    value = value_at(path, table)
    name = ".".join(path) or owner
    return ConfigError(f"{where}{name} is {value!r}, but it should be {wanted}{origin.place(section, key)}")


def real_path(location: Iterable[int | str], table: Mapping[str, Any]) -> list[str]:
    """The part of an error's location that is in the table; what follows only names a form that was tried."""
    path: list[str] = []
    value: Any = table
    for part in location:
        inside = part in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(part, int)
        if not inside:
            break
        path.append(str(part))
        value = value[part]
    return path


def value_at(path: Iterable[str], table: Mapping[str, Any]) -> Any:
    """What a table has at a path."""
    value: Any = table
    for part in path:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def as_table(instance: object) -> Table:
    """A dataclass's settings as a table, `None` (not given) left out."""
    assert dataclasses.is_dataclass(instance)
    values = {name: getattr(instance, name) for name in fields_of(type(instance))}
    plain = json.loads(json.dumps(values))
    return {name: value for name, value in plain.items() if value is not None}
