"""Reading a table of settings into a dataclass, with errors that name the place, the value and what would be right."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from potluck.core.errors import ConfigError
from potluck.core.plug import hint
from potluck.core.ranges import Should

Schema = TypeVar("Schema")
Table = dict[str, Any]

WHOLE = 2**63  # whole numbers in TOML have 64 bits
DEEPEST = 16  # tables and arrays in each other
SHOWN = 200  # characters of a value in an error
PLAIN_WORDS = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid array": "a list",
    "an object": "a table",
}


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where settings came from, so that an error can point there."""

    file: Path | None = None
    text: str = ""
    overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)  # key to text, from the command line
    trusted: bool = False  # whether the user vouches for all of it
    arguments: bool = False  # of a function in Python, where there are no sections
    notes: tuple[str, ...] = ()  # what to say of the overrides

    def trusts(self, section: str, key: str) -> bool:
        """Whether code that a key names may run: the user vouches for the whole config, or typed this name."""
        typed = {section, f"{section}.{key}", f"{section}.{key}.name"}
        return self.trusted or not typed.isdisjoint(self.overrides)

    def about(self, section: str) -> str:
        """How an error about a section begins: with its name, in Python with that of the argument."""
        if not self.arguments:
            return f"[{section}] " if section else ""
        last = section.rpartition(".")[2]
        return "" if last in SPREAD else f"{last}: "

    def place(self, section: str, key: str) -> str:
        """` (file:line)` of a key, or what else is known of its origin."""
        dotted = f"{section}.{key}" if section else key
        if any(dotted == override or override.startswith(f"{dotted}.") for override in self.overrides):
            return f" (--set {dotted})"
        if self.file is None:
            return ""
        outer, _, inner = section.rpartition(".")
        line = find_line(self.text, section, key) or find_line(self.text, outer, inner)  # `inner = { key = … }`
        return f" ({self.file}:{line})" if line else f" ({self.file})"


SPREAD = ("", "task", "fleet", "engine")  # sections whose settings are arguments of their own in Python
NOWHERE = Origin()
TYPED = Origin(trusted=True)  # by the user, on the command line
PYTHON = Origin(trusted=True, arguments=True)  # by the user, in a program of their own


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
    whose, place = subject(section, owner, origin), origin.place(section, key)
    if known:
        return ConfigError(f"{whose} has no {key!r}; {hint(key, known)}{place}")
    instead = f", or use --set {section}={owner}" if origin.file and "." in section else ""
    return ConfigError(f"{whose} takes no options; remove {key!r}{instead}{place}")


def subject(section: str, owner: str, origin: Origin) -> str:
    """Whose settings are spoken of: a section's, or those of what it names."""
    return f"{origin.about(section)}{owner}" if owner else origin.about(section).rstrip(": ")


def read_table(schema: type[Schema], table: Mapping[str, Any], section: str, owner: str, origin: Origin) -> Schema:
    """A dataclass from a table of settings: no unknown keys, no silent conversions, ranges checked."""
    known = fields_of(schema)
    for key in table:
        if key not in known:
            raise unknown_key(section, owner, key, known, origin)
    require_nested(schema, table, section, origin)
    try:
        return validated(schema, table)
    except ConfigError as error:  # a check of the dataclass's own, which begins with the name of a setting
        key = str(error).partition(" ")[0]
        raise ConfigError(
            f"{origin.about(section)}{error}{origin.place(section, key if key in known else '')}"
        ) from error
    except ValidationError as error:
        wrong = {str(each["loc"][0]) for each in error.errors() if each["loc"]}
        texts = {key: origin.overrides.get(f"{section}.{key}") for key in wrong}
        try:  # `--set method.masking=-inf` is a number in TOML, but may be meant as the word it is
            return validated(schema, {**table, **{key: text for key, text in texts.items() if text is not None}})
        except ValidationError:
            raise explain(error, schema, table, section, owner, origin) from error


def require_nested(schema: type[Any], table: Mapping[str, Any], section: str, origin: Origin) -> None:
    """Check settings that are tables themselves: things of several kinds, each with a name and settings of its own."""
    for key, value in table.items():
        given = as_plain(value) if is_instance(value) else value
        if not isinstance(given, Mapping) or not (known := things_of(schema, key)):
            continue
        inner, place = f"{section}.{key}", origin.place(section, key)
        names, name = listed(known), given.get("name")
        if name is None:
            raise ConfigError(f"{origin.about(inner)}needs a 'name': {names}{place}")
        if not isinstance(name, str) or name not in known:
            raise ConfigError(f"{origin.about(inner)}name is {shown(name)}, but it should be {names}{place}")
        read_table(known[name], given, inner, name, origin)


def things_of(schema: type[Any], key: str) -> dict[str, type[Any]]:
    """The dataclasses that a setting may be, by the name that tells them apart."""
    kind = get_type_hints(schema).get(key)
    found = [each for each in (get_args(kind) or (kind,)) if dataclasses.is_dataclass(each)]
    return {each.name: each for each in found if isinstance(each, type) and hasattr(each, "name")}


def listed(names: Iterable[str]) -> str:
    """Names to choose from.

    >>> listed(["momentum", "yogi", "adam"])
    "'momentum', 'yogi' or 'adam'"
    """
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last


def is_instance(value: object) -> bool:
    """Whether a value is settings itself, made in Python."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def validated(schema: type[Schema], table: Mapping[str, Any]) -> Schema:
    """Strict validation; as JSON, because an array is then taken for a tuple, and TOML has no tuples."""
    return TypeAdapter(schema).validate_json(json.dumps(table, default=as_plain), strict=True)


def as_plain(value: Any) -> Any:
    """What JSON takes, of a value that it does not: a table, of settings; a number, of NumPy's or PyTorch's scalar."""
    if is_instance(value):
        return as_table(value)
    return value.item() if getattr(value, "ndim", None) == 0 else str(value)


def explain(
    error: ValidationError, schema: type[Any], table: Mapping[str, Any], section: str, owner: str, origin: Origin
) -> ConfigError:
    """The first thing wrong with a table, as a sentence; of a setting with several forms, what each would be."""
    first = error.errors()[0]
    path = real_path(first["loc"], table)
    key = path[0] if path else str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "missing" and not path:
        return ConfigError(f"{subject(section, owner, origin)} needs '{key}'{origin.place(section, '')}")
    alike = [other["msg"] for other in error.errors() if real_path(other["loc"], table) == path]
    wanted = " or ".join(dict.fromkeys(in_plain_words(message) for message in alike))
    if path == [key]:
        wanted = in_words(schema, key) or wanted
    name, value = ".".join(path) or owner, shown(value_at(path, table))
    return ConfigError(
        f"{origin.about(section)}{name} is {value}, but it should be {wanted}{origin.place(section, key)}"
    )


def in_plain_words(message: str) -> str:
    """What pydantic expects, in the words of the docs.

    >>> in_plain_words("Input should be a valid integer")
    'a whole number'
    """
    wanted = message.removeprefix("Input should be ")
    return PLAIN_WORDS.get(wanted, wanted)


def in_words(schema: type[Any], key: str) -> str:
    """What a setting should be, if its type brings words for it."""
    kinds = getattr(get_type_hints(schema, include_extras=True).get(key), "__metadata__", ())
    return next((kind.be for kind in kinds if isinstance(kind, Should)), "")


def shown(value: object) -> str:
    """A value as an error shows it.

    >>> shown("lr"), len(shown("x" * 1000))
    ("'lr'", 201)
    """
    try:
        text = re.sub(r"\s*\n\s*", " ", repr(value))  # a network's has many lines
    except ValueError:  # Python does not write whole numbers of thousands of digits
        return "too long a number"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def require_plain(value: object, origin: Origin, path: tuple[str, ...] = (), depth: int = 0) -> None:
    """Refuse what no setting can be: a whole number beyond 64 bits, text that no file can hold, nesting without end."""
    wrong = ""
    if depth > DEEPEST:
        wrong = f"more than {DEEPEST} tables or arrays in each other"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            require_plain(str(key), origin, path, depth)
            require_plain(inner, origin, (*path, str(key)), depth + 1)
    elif isinstance(value, list):
        for inner in value:
            require_plain(inner, origin, path, depth + 1)
    elif isinstance(value, int) and not -WHOLE <= value < WHOLE:
        wrong = f"a whole number of more than 64 bits; the largest is {WHOLE - 1}"
    elif isinstance(value, str) and ("\0" in value or not is_text(value)):
        wrong = f"the text {shown(value)}, with characters that no text file holds"
    if wrong:
        place = origin.place(".".join(path[:-1]), path[-1]) if path else ""
        raise ConfigError(f"{'.'.join(path) or 'the config'} has {wrong}{place}")


def is_text(value: str) -> bool:
    """Whether a string can be written to a file: what a shell passes on need not be text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def real_path(location: Iterable[int | str], table: Mapping[str, Any]) -> list[str]:
    """The part of an error's location that is in the table; what follows only names a form that was tried."""
    path: list[str] = []
    value: Any = table
    for part in location:
        inside = part in value if isinstance(value, Mapping) else isinstance(value, list) and part in range(len(value))
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
    plain = json.loads(json.dumps(values, default=as_plain))
    return {name: value for name, value in plain.items() if value is not None}
