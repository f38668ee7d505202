"""Numbers that a broker gives out, as its journal has them: none is given twice.

Numbers of subscriptions, patterns and contracts across clouds come from one counter, numbers of
channels from another. A compacted journal repeats what is still held and states how far the
counters have come; all other records take new numbers, or go on with what has not ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operations import (
    Attached,
    ChannelAdded,
    NumbersReached,
    PatternHeld,
    Subscribed,
)
from gridstat.broker.records.parent_operations import ContractAsked
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Collection

RULE: Final = "no number is given twice"
COUNTED: Final = (
    Attached,
    ChannelAdded,
    ContractAsked,
    NumbersReached,
    PatternHeld,
    Subscribed,
)
"""Operations that give out numbers."""

Whose = tuple[object, ...]


class Numbers:
    """Numbers of one broker, and whose they are or were."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, Whose] = {}
        self._channels: dict[int, Whose] = {}

    def read(self, operation: object, ended: Collection[int], *, is_repeated: bool) -> None:
        """Read a record; `is_repeated` in a compacted journal, which begins nothing."""
        match operation:
            case NumbersReached():
                self._check_reached(operation)
            case Attached():
                where = operation.endpoint, operation.edge
                self._take_channel(operation.up_channel_id, (*where, "up"))
                self._take_channel(operation.down_channel_id, (*where, "down"))
            case ChannelAdded(channel=channel):
                ends = channel.from_router, channel.to_router
                self._take_channel(int(channel.channel_id), ends)
            case Subscribed(subscription_id=number):
                whose: Whose = operation.subscriber, operation.name, operation.contract
                self._take(number, whose, ended, is_repeated=is_repeated, is_new=True)
            case PatternHeld(pattern_id=number):
                whose = operation.subscriber, operation.pattern
                self._take(number, whose, ended, is_repeated=is_repeated, is_new=True)
            case ContractAsked(number=number):
                whose = operation.subscriber, operation.name
                self._take(number, whose, ended, is_repeated=is_repeated, is_new=False)
            case _:
                pass

    def _check_reached(self, reached: NumbersReached) -> None:
        """Check that what a compacted journal states covers every number ever given."""
        for name, given, last in (
            ("subscription", self._subscriptions, reached.subscription_id),
            ("channel", self._channels, reached.channel_id),
        ):
            highest = max(given, default=0)
            if last < highest:
                raise PropertyBroken(
                    RULE, f"a compacted journal states {name} {last}, and {highest} was given"
                )

    def _take(
        self, number: int, whose: Whose, ended: Collection[int], *, is_repeated: bool, is_new: bool
    ) -> None:
        before = self._subscriptions.setdefault(number, whose)
        is_given_again = before is not whose and is_new and not is_repeated
        if before != whose or is_given_again or (number in ended and not is_repeated):
            raise PropertyBroken(RULE, f"subscription {number} was {before} and is {whose}")

    def _take_channel(self, number: int, whose: Whose) -> None:
        if self._channels.setdefault(number, whose) != whose:
            raise PropertyBroken(
                RULE, f"channel {number} was {self._channels[number]} and is {whose}"
            )
