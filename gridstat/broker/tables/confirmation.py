"""Wait for routers to confirm a change of their tables.

States: a confirmation is pending until every connected router has confirmed and the paths work
without the absent ones, or until its deadline; then it has ended for good, and `then` has run once.
Events: `confirm` (a router has confirmed the change), `session_ended` (a router's session ended
first) and `finish` (the deadline has passed). A router that returns gets its whole table, and its
confirmation then counts here. Confirmations are not durable: after a restart the broker begins new
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import TypeAlias

Judge: TypeAlias = Callable[[Set[str]], bool]
"""Function that returns whether paths work although these routers have not confirmed."""


@dataclass(slots=True)
class Confirmation:
    """One wait; it ends when no router is missing and `judge` accepts the absent ones.

    `missing` are connected routers that have not confirmed yet. `absent` are routers without a
    session, which receive their orders when they return. Without a judge absent routers do not
    matter, as for a tear-down.
    """

    then: Callable[[Confirmation], None]
    deadline_ns: int
    judge: Judge | None = None
    missing: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    has_ended: bool = False

    @property
    def silent(self) -> list[str]:
        """Return the routers that have not confirmed, in name order."""
        return sorted(self.missing | self.absent)

    def confirm(self, router: str) -> None:
        self.missing.discard(router)
        self.absent.discard(router)
        if not self.missing:
            self.end_if_confirmed()

    def session_ended(self, router: str) -> None:
        """Handle that a router's session ended before it confirmed."""
        if router in self.missing:
            self.missing.discard(router)
            self.absent.add(router)
            self.end_if_confirmed()

    def end_if_confirmed(self) -> None:
        if self.has_ended or self.missing:
            return
        if not self.absent or self.judge is None or self.judge(self.absent):
            self.finish()

    def finish(self) -> None:
        """End the wait and run `then`, which looks at the routers that have not confirmed."""
        if not self.has_ended:
            self.has_ended = True
            self.then(self)
