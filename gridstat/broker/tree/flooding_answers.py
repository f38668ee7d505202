"""What operators of a broker above clouds are answered about flooding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridstat.model.flooding import overrides
from gridstat.model.qos import undefined_modes
from gridstat.net.command.operator_messages import OperatorAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gridstat.broker.tree.desk import TreeDesk
    from gridstat.broker.tree.flooding_book import FloodingBook
    from gridstat.broker.tree.flooding_records import FloodingHeld
    from gridstat.net.command.endpoint_messages import RefusedOutcome

Facts = dict[str, Any]


class Asker:
    """An operator and the number of its question; it is told once."""

    def __init__(self, desk: TreeDesk, peer: str, request_id: int) -> None:
        self._desk = desk
        self._peer = peer
        self._request_id = request_id

    def answer(self, facts: Facts) -> None:
        self._desk.send(self._peer, OperatorAnswer(request_id=self._request_id, facts=facts))

    def refuse(self, no: RefusedOutcome) -> None:
        self._desk.send(self._peer, OperatorAnswer(request_id=self._request_id, refused=no))


class Insistence:
    """Nobody asked, and it has to be: what could not be written is tried again."""

    def __init__(self, again: Callable[[], None]) -> None:
        self._again = again

    def answer(self, facts: Facts) -> None:
        """Nobody waits for it."""

    def refuse(self, no: RefusedOutcome) -> None:
        del no
        self._again()


class Unconfirmed:
    """Who has not confirmed how a variable floods since that last changed."""

    def __init__(self, book: FloodingBook) -> None:
        self._book = book
        self._silent: dict[str, set[str]] = {}

    def by(self, name: str) -> list[str]:
        return sorted(self._silent.get(name, ()))

    def put(self, name: str, silent: set[str]) -> None:
        self._silent.pop(name, None)
        if silent and name in self._book.floods:
            self._silent[name] = silent

    def confirmed(self, name: str, child: str) -> None:
        self.put(name, self._silent.get(name, set()) - {child})

    def joined(self, child: str) -> None:
        """It is told all that counts, and floods or refuses it from now on."""
        for name in list(self._silent):
            self.confirmed(name, child)


def facts_of(name: str, held: FloodingHeld | None, depth: int, defined: Collection[int]) -> Facts:
    """How a variable floods, mode by mode, and whose request that is."""
    if held is None:
        return {"name": name, "modes": []}
    return {
        "name": name,
        "variable_id": held.variable.variable_id,
        "modes": [
            {
                "mode": mode,
                "level": term.level,
                "every": term.every,
                "asked_by": "parent" if mode in held.above else "operator",
                "overrides_operator": overrides(mode, held.own, held.above),
                "is_defined": not undefined_modes((mode,), defined),
            }
            for mode, term in held.terms(depth).items()
        ],
    }
