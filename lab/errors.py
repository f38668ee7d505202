"""Errors that keep the lab from working, each with a hint for the person who started it."""

from __future__ import annotations


class LabError(Exception):
    """Lack of something that the lab needs of this machine; `hint` says what to change."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        text = str(self.args[0])
        return f"{text}\nhint: {self.hint}" if self.hint else text
