"""Short texts of objects for people: one line for a log or a terminal."""

from __future__ import annotations

from typing import Final

TEXT_CHARS_MAX: Final = 120
NAME_CHARS_MAX: Final = 64


def short_repr(kind: object, name: str, *facts: str) -> str:
    """Return `<Kind name, fact, fact>` on one line of at most 120 characters."""
    joined = ", ".join([_middle_cut(name, NAME_CHARS_MAX), *(fact for fact in facts if fact)])
    text = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in joined)
    kind_name = type(kind).__name__
    chars_max = TEXT_CHARS_MAX - len(f"<{kind_name} >")
    return f"<{kind_name} {text if len(text) <= chars_max else f'{text[: chars_max - 1]}…'}>"


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 path`, `2 paths`, `3 matches`."""
    ending = "es" if what.endswith("ch") else "s"
    return f"{number} {what}{'' if number == 1 else ending}"


def _middle_cut(text: str, chars_max: int) -> str:
    """Return the text without its middle if it is too long, since names differ at both ends."""
    if len(text) <= chars_max:
        return text
    half = (chars_max - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
