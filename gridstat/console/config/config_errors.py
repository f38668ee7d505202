"""Configuration errors: one message with the file, the key, the problem, and what to write.

Of several mistakes the first one is reported, with the number of the others: users correct the
first and run again.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from gridstat.model.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

SECRET_KEYS = frozenset({"journal"})
"""Keys whose values may contain a password."""
SHOWN_MAX = 200
KINDS = {
    "int_type": "a whole number without quotes",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "a table",
    "dict_type": "a table",
}


def complaint(file: str, key: str, problem: str, *, hint: str) -> ConfigurationError:
    where = f"{file}: {key}" if key else file
    return ConfigurationError(f"{where}: {problem}", hint=hint)


def complaint_of(
    error: ValidationError, document: Mapping[str, Any], *, file: str, model: type[BaseModel]
) -> ConfigurationError:
    """Return the first mistake that the model found, in the terms of the file."""
    details = error.errors(include_url=False)
    first = details[0]
    path = first["loc"]
    problem, hint = _problem_and_hint(first, path, model=model)
    more = len(details) - 1
    if more:
        problem += f" (and {more} more {'mistake' if more == 1 else 'mistakes'} in the file)"
    return complaint(file, key_of(path, document), problem, hint=hint)


def key_of(path: Sequence[str | int], document: Mapping[str, Any]) -> str:
    """A key as people find it again: `router[1].data_port ("west")`, counted from 0."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    name = _name_at(path, document)
    return f'{text} ("{name}")' if name else text


def _name_at(path: Sequence[str | int], document: Mapping[str, Any]) -> str:
    match path:
        case [str(table), int(index), *_]:
            entries = document.get(table)
            entry = entries[index] if isinstance(entries, list) and index < len(entries) else None
            name = entry.get("name") if isinstance(entry, dict) else None
            return name if isinstance(name, str) else ""
        case _:
            return ""


def _problem_and_hint(
    detail: ErrorDetails, path: Sequence[str | int], *, model: type[BaseModel]
) -> tuple[str, str]:
    kind = detail["type"]
    shown = "this value" if SECRET_KEYS.intersection(path) else _shown(detail["input"])
    match kind:
        case "extra_forbidden":
            report = ("unknown key", unknown_key_hint(str(path[-1]), known_keys(path, model)))
        case "missing" if len(path) == 1:
            report = ("missing", _missing_hint(str(path[0]), model))
        case "missing":
            report = ("missing", f"this key is needed in {_table_text(path)}")
        case "value_error":
            problem, _, hint = detail["msg"].removeprefix("Value error, ").partition("|")
            report = (f"{shown}: {problem}", hint)
        case "list_type" if len(path) == 1:
            report = (f"{shown} is not a list", f"write it as a table, [[{path[0]}]]")
        case "too_short":
            report = ("empty", "give at least one")
        case "too_long":
            most = detail.get("ctx", {}).get("max_length")
            report = ("too many", f"one file may have {most}; start the others from a second file")
        case "finite_number":
            report = (f"{shown} is no number", "write it in digits, as 1.5")
        case _ if kind in KINDS:
            report = (f"{shown} is not {KINDS[kind]}", f"write {KINDS[kind]}")
        case _:
            report = (f"{shown} is out of range", _range_hint(detail, str(path[-1])))
    return report


def _shown(value: object) -> str:
    """Return the value from the file, shortened for a message."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no number of thousands of digits.
        return "a number without end"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _range_hint(detail: ErrorDetails, key: str) -> str:
    context = detail.get("ctx", {})
    if key == "port" or key.endswith("_port"):
        return "a port is 1 to 65535, or 0 to have one chosen when the grid starts"
    if "ge" in context:
        return f"the least that works is {context['ge']}"
    if "le" in context:
        return f"the most that works is {context['le']}"
    return str(detail["msg"])


def known_keys(path: Sequence[str | int], model: type[BaseModel]) -> list[str]:
    """Return the keys that are possible where `path` ends, as the file spells them."""
    for part in path[:-1]:
        if isinstance(part, str):
            model = _table_at(part, model) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _missing_hint(key: str, model: type[BaseModel]) -> str:
    if _table_at(key, model) is not None:
        return f"write at least one [[{key}]] table"
    return f"write {key} = … at the top of the file"


def _table_text(path: Sequence[str | int]) -> str:
    """The table around a key as a file writes it: `[parent]`, `every [[cloud.router]]`."""
    name = ".".join(part for part in path[:-1] if isinstance(part, str))
    return f"every [[{name}]]" if isinstance(path[-2], int) else f"[{name}]"


def _table_at(key: str, model: type[BaseModel]) -> type[BaseModel] | None:
    """The model of the table, or list of tables, under a key; None if it is a plain value."""
    for name, field in model.model_fields.items():
        if key in {name, field.alias}:
            for kind in (field.annotation, *get_args(field.annotation)):
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    return kind
    return None


def unknown_key_hint(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    listed = f"known here: {', '.join(known)}"
    return f"did you mean `{near[0]}`? {listed}" if near else listed
