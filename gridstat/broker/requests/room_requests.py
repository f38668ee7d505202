"""Requests to the owners of contracts between clouds to lower them, since another lacks room.

A leaf broker holds segments of contracts that other brokers own, so it lowers none itself. Where
the split by bands (`model/band_law.py`) would lower a segment, it sends `LowerContract` to its
parent, and the request waits. The owner changes the contract: the next generation with the lower
rate is reserved beside the present one on the same slots, so it needs no more room, and the present
one is released. Then the request is tried again.

Timeout: a request waits for `WAIT_NS_MAX` at most. It then gets what there is room for without the
segments. Restart and lost session: nothing of this is durable; a request that is repeated asks
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gridstat.broker.capacity.band_planning import every_of
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.segment_messages import CAUSE_LENGTH_MAX, LowerContract

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.band_planning import Adjusted
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Subscribed
    from gridstat.net.command.messages import Message

WAIT_NS_MAX: Final = 2 * NS_PER_S
"""Time for which a request waits for owners to lower contracts."""
AGAIN_NS: Final = NS_PER_S
"""Time after which an owner is asked again."""


class ParentLink(Protocol):
    """Session with the parent, which sends while it is joined."""

    @property
    def term(self) -> int: ...

    @property
    def is_joined(self) -> bool: ...

    def send(self, message: Message) -> None: ...


class RoomRequests:
    """`_asked` has, by segment, when its owner was asked last, and for which divisor."""

    def __init__(self, context: BrokerContext, session: ParentLink) -> None:
        self._context = context
        self._session = session
        self._asked: dict[int, tuple[int, int]] = {}

    def may_ask(self, number: int) -> bool:
        """Return whether the owner of a held segment can be asked to lower it."""
        found = self._context.registry.subscriptions.get(number)
        if found is None or not self._session.is_joined:
            return False
        return bool(found.record.contract and found.record.every_worst) and (
            not found.record.is_reserved
        )

    def has_any(self) -> bool:
        """Return whether an owner of any segment could be asked."""
        return self._session.is_joined and any(
            record.every_worst for record in self._context.registry.segments()
        )

    def ask(self, lowered: Iterable[Adjusted], cause: str, priority: int) -> bool:
        """Ask owners to lower their contracts at least so far; return whether that is possible.

        The next divisor is a multiple of the present one: then the generation with it carries no
        slot that is not carried already, and needs no room.
        """
        wanted = [(each, _multiple(each)) for each in lowered]
        if not all(every for _, every in wanted):
            return False
        for each, every in wanted:
            self._send(each.before.subscription_id, every, cause, priority)
        return True

    def _send(self, number: int, every: int, cause: str, priority: int) -> None:
        now_ns = self._context.now_ns
        asked_ns, asked_every = self._asked.get(number, (-AGAIN_NS, 0))
        if now_ns < asked_ns + AGAIN_NS and every <= asked_every:
            return
        self._forget_old(now_ns)
        self._asked[number] = now_ns, every
        record = self._context.registry.subscriptions[number].record
        self._context.note("lower_asked", contract=record.contract, every=every, room_for=cause)
        self._session.send(
            LowerContract(
                term=self._session.term,
                contract=record.contract,
                generation=record.segment_generation,
                every=every,
                lowered_for=cause[:CAUSE_LENGTH_MAX],
                priority=priority,
            )
        )

    def _forget_old(self, now_ns: int) -> None:
        self._asked = {
            number: asked for number, asked in self._asked.items() if now_ns < asked[0] + AGAIN_NS
        }


def _multiple(lowered: Adjusted) -> int:
    """Return the next multiple of the present divisor in the band, or 0."""
    present, wanted = every_of(lowered.before.granted), every_of(lowered.after.granted)
    every = present * -(-wanted // present)
    return every if every <= lowered.before.request.every_worst else 0


def cause_of(cloud: str, record: Subscribed) -> str:
    """Return how a contract is named where it is the reason that others were lowered."""
    return record.contract or cause_text(cloud, record.subscriber, record.name)


def cause_text(cloud: str, subscriber: str, name: str) -> str:
    return f"{cloud}: {subscriber} to {name}"
