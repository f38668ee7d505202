"""The end of a contract at its owner: durable first, then told, and everything is given back.

On its way there an ending is kept by the brokers that it passes, until it is confirmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.tree.records import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.commits import Commits
    from gridstat.broker.tree.desk import TreeDesk
    from gridstat.broker.tree.parting import Parting
    from gridstat.net.command.stretch_messages import EndContract


class Endings:
    """Whoever asks twice for an end is answered twice, each time when it is durable."""

    def __init__(self, desk: TreeDesk, commits: Commits, parting: Parting) -> None:
        self._desk = desk
        self._commits = commits
        self._parting = parting

    def end(self, contract: str, then: Callable[[], None]) -> None:
        """Let go of all generations that are held as this broker's own; `then` follows."""
        holdings = self._desk.state.holdings
        owned = [
            found
            for found in holdings.of(contract)
            if found.is_owned and holdings.stage(found) is Stage.COMMITTED
        ]

        def over() -> None:
            for found in owned:
                self._commits.forget(found.key)
                self._parting.leave(found)
            then()

        if not owned and not self._desk.pending_count:
            then()
            return
        self._desk.decide(
            holdings.moves(owned, Stage.LEAVING),
            over,
            lambda _: self._desk.later(lambda: self.end(contract, then)),
        )


class EndingsAbove:
    """Of more than can be kept, the children are had to say them again once the parent is there."""

    def __init__(self, desk: TreeDesk) -> None:
        self._desk = desk
        self._open: dict[str, EndContract] = {}
        self._unkept: set[str] = set()
        """Children that have ended more than could be kept."""
        self.say_again: Callable[[str], None] = _nothing

    def __len__(self) -> int:
        return len(self._open)

    def say(self, child: str, message: EndContract) -> None:
        """Pass it up, now and after every join, until it is confirmed."""
        if message.contract not in self._open:
            if len(self._open) < self._desk.settings.transactions_max:
                self._open[message.contract] = message
            else:
                self._unkept.add(child)
        self._desk.send_parent(structs.replace(message, term=self._desk.term))

    def confirmed(self, contract: str) -> None:
        self._open.pop(contract, None)

    def parent_joined(self) -> None:
        for ending in self._open.values():
            self._desk.send_parent(structs.replace(ending, term=self._desk.term))
        unkept, self._unkept = self._unkept, set()
        for child in sorted(unkept & self._desk.joined):
            self.say_again(child)


def _nothing(_: object) -> None:
    """Nobody listens yet."""
