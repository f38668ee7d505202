"""Reads the golden files beside it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def load_golden(name: str) -> dict[str, Any]:
    """The golden file `name`, such as "event.toml"."""
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


def octets(text: str) -> bytes:
    """Hexadecimal digits with blanks and line breaks between fields, as bytes."""
    return bytes.fromhex("".join(text.split()))
