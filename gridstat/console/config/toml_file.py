"""Settings files: TOML text in, settings of a model out, or one clear error."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gridstat.console.config.config_errors import complaint, complaint_of

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_BYTES_MAX = 16 * 1024 * 1024


class Section(BaseModel):
    """Base of all tables: no unknown keys, no guessed types, no `nan`."""

    # A traceback would repeat values too, of which one may have a password in it.
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )


Settings = TypeVar("Settings", bound=BaseModel)


def load_settings(path: Path, model: type[Settings], *, hint: str) -> Settings:
    """Return the settings in a file; raise `ConfigurationError` naming file, key and remedy."""
    return settings_from_text(read_text(path, hint=hint), model, file=str(path))


def read_text(path: Path, *, hint: str) -> str:
    """Return the file's text; `hint` is for the error if there is no file."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise complaint(str(path), "", "too large for a settings file", hint=hint)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise complaint(str(path), "", str(reason).lower(), hint=hint) from error


def settings_from_text(text: str, model: type[Settings], *, file: str) -> Settings:
    return settings_of(document_of(text, file=file), model, file=file)


def document_of(text: str, *, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "mend that line; text needs quotes, a table is written [[router]]"
        raise complaint(file, "", f"not TOML: {error}", hint=hint) from error
    # Beside its own error the library lets pass those of numbers and of nesting without end.
    except (ValueError, OverflowError) as error:
        hint = "no setting needs a number of hundreds of digits, nor a date that is none"
        raise complaint(file, "", "a value that cannot be read", hint=hint) from error
    except RecursionError as error:
        hint = "a list has values or tables in it, and no list of lists of lists"
        raise complaint(file, "", "nested too deeply", hint=hint) from error


def settings_of(document: Mapping[str, Any], model: type[Settings], *, file: str) -> Settings:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise complaint_of(error, document, file=file, model=model) from error


def beside(file: str | Path, name: str) -> Path:
    """A path written in a file is meant from that file's folder."""
    return Path(file).resolve().parent / name
