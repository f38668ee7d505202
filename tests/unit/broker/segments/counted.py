"""Dictionaries that count how often anything in them is looked at, to bound work and not time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Counted(dict[Any, Any]):
    """`looks` counts what is read, and each key that a loop comes by."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.looks += 1
            yield key
