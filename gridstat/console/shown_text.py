"""Text from outside as a terminal may show it: one line, and nothing that the terminal obeys.

Names, reasons and hints are chosen by peers. All that gridstat prints, draws or logs passes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.invisible_letters import INVISIBLE

if TYPE_CHECKING:
    from gridstat.model.errors import GridStatError


def shown_text(text: str) -> str:
    """Return the text in one line that a terminal shows and does not obey: `\\x1b` for ESC."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if _is_shown(each) else _escape(each) for each in text)


def shown_lines(text: str) -> str:
    """Return the same for a text of ours with several lines; no part of it is from a peer."""
    return "\n".join(shown_text(line) for line in text.split("\n"))


def error_line(error: GridStatError) -> str:
    """Return an error and its hint in one line, for a message beside others."""
    text = f"{error.args[0]} ({error.code})"
    return f"{text}; hint: {error.hint}" if error.hint else text


def _is_shown(each: str) -> bool:
    return each.isprintable() and each not in INVISIBLE


def _escape(each: str) -> str:
    return each.encode("unicode_escape").decode("ascii")
