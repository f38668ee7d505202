"""The root of all errors."""

from __future__ import annotations

from typing import ClassVar


class GridStatError(Exception):
    """Base class of all errors that gridstat raises.

    `remedy` is the default hint; code that raises an error usually passes a better one.
    """

    code: ClassVar[int] = 0
    remedy: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or self.remedy

    def __str__(self) -> str:
        text = f"{self.args[0]} ({self.code})"
        return f"{text}\nhint: {self.hint}" if self.hint else text
