"""Executor of the agent's instructions on the core; the caller keeps the time.

It is the only part between the pure agent and the core: a change is applied at once, committed when
`work` finds it due, and then reported as one event however many changes it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import GridStatError
from gridstat.router.agent_events import (
    AddressChecked,
    ApplyTable,
    CheckAddress,
    CountersRead,
    ForgetSeeds,
    HoldChannel,
    ReadCounters,
    SeedTaken,
    SetModes,
    TableApplied,
    TableFailed,
    TakeSeed,
    WaterMarkCrossed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.model.keys.channel_keys import SeedInstalled
    from gridstat.router.agent_events import RouterEvent
    from gridstat.router.status_router import StatusRouter


class CoreWork:
    """Answers every `ApplyTable` once: by `TableApplied` of it or a later one, or a failure."""

    def __init__(self, router: StatusRouter) -> None:
        self._router = router
        self._unanswered: int | None = None
        self.back_pressured: set[int] = set()
        """Channels under back-pressure."""

    def perform(self, instruction: object) -> list[RouterEvent] | None:
        """Perform an instruction; return None if it is not about the core."""
        match instruction:
            case ApplyTable():
                return self._apply(instruction)
            case SetModes(mask):
                self._router.set_modes(mask)
                return []
            case TakeSeed() | ForgetSeeds() | CheckAddress() | HoldChannel():
                return self._perform_on_channel(instruction)
            case ReadCounters():
                return [CountersRead(self._router.report())]
            case _:
                return None

    def _perform_on_channel(
        self, instruction: TakeSeed | ForgetSeeds | CheckAddress | HoldChannel
    ) -> list[RouterEvent]:
        match instruction:
            case TakeSeed(message):
                return _seeds_taken(self._router.take_seed(message))
            case CheckAddress(channel_id, counter):
                is_proved = self._router.check_address(channel_id, counter)
                return [AddressChecked(channel_id, is_proved)]
            case HoldChannel(channel_id, is_probed):
                self._router.hold_channel(channel_id, is_probed=is_probed)
            case ForgetSeeds(kept):
                self._router.forget_seeds(kept)
        return []

    def wait_s(self) -> float | None:
        """Return the time until `work` has something to do; None when there is nothing."""
        if self._unanswered is not None and self._router.wait_s() is None:
            return 0.0
        return self._router.wait_s()

    def work(self) -> list[RouterEvent]:
        """Commit the due changes; return the events that report it."""
        try:
            self._router.commit_due()
        except GridStatError as error:
            return self._failed(error)
        if self._unanswered is None or self._router.wait_s() is not None:
            return []
        number, self._unanswered = self._unanswered, None
        return [TableApplied(number, self._router.refused_rows())]

    def poll(self) -> list[RouterEvent]:
        """Return changes of the channels; called often enough to detect a silence within its
        bound."""
        news = self._router.poll()
        for each in news:
            if isinstance(each, WaterMarkCrossed):
                (self.back_pressured.add if each.is_on else self.back_pressured.discard)(
                    each.channel_id
                )
        return [*news, *self._router.poll_policed(), *self._router.poll_keys()]

    def poll_after_s(self) -> float:
        """Return the time until the next poll."""
        return self._router.poll_after_s()

    def _apply(self, order: ApplyTable) -> list[RouterEvent]:
        self._unanswered = order.number
        try:
            self._router.apply(order.change)
        except GridStatError as error:
            return self._failed(error)
        return _seeds_taken(self._router.take_installed())

    def _failed(self, error: GridStatError) -> list[RouterEvent]:
        number, self._unanswered = self._unanswered, None
        return [TableFailed(number or 0, error.code, str(error.args[0]))]


def _seeds_taken(installed: Iterable[SeedInstalled]) -> list[RouterEvent]:
    return [SeedTaken(each.channel_id, each.number, each.first_epoch) for each in installed]
