"""Waiting for routers: what a table change was made for happens once they have confirmed it."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import TypeAlias

Judge: TypeAlias = Callable[[Set[str]], bool]
"""Whether things work while these routers have not confirmed."""


@dataclass(slots=True)
class Confirmation:
    """Over once every connected router has confirmed, and what is missing can be done without.

    `missing` are connected routers that have not answered yet, `absent` those without a session:
    they take their orders when they return. Without a judge absent routers do not matter, as for
    a tear-down.
    """

    then: Callable[[Confirmation], None]
    deadline_ns: int
    judge: Judge | None = None
    missing: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    is_over: bool = False

    @property
    def silent(self) -> list[str]:
        """The routers that have not confirmed, in name order."""
        return sorted(self.missing | self.absent)

    def confirm(self, router: str) -> None:
        self.missing.discard(router)
        self.absent.discard(router)
        if not self.missing:
            self.settle()

    def lose(self, router: str) -> None:
        """The router's session went before it confirmed."""
        if router in self.missing:
            self.missing.discard(router)
            self.absent.add(router)
            self.settle()

    def settle(self) -> None:
        if self.is_over or self.missing:
            return
        if not self.absent or self.judge is None or self.judge(self.absent):
            self.finish()

    def finish(self) -> None:
        """Time is up, or all is well: whoever waits decides with what there is."""
        if not self.is_over:
            self.is_over = True
            self.then(self)
