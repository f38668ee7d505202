"""Executor of the agent's instructions on the core; the caller keeps the time.

It is the only part between the pure agent and the core: a change is applied at once, committed when
`work` finds it due, and then reported as one event however many changes it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import GridStatError
from gridstat.router.agent_events import (
    ApplyTable,
    CountersRead,
    ReadCounters,
    SetModes,
    TableApplied,
    TableFailed,
    WaterMarkCrossed,
)

if TYPE_CHECKING:
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
            case ReadCounters():
                return [CountersRead(self._router.report())]
            case _:
                return None

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
        return [*news, *self._router.poll_policed()]

    def poll_after_s(self) -> float:
        """Return the time until the next poll."""
        return self._router.poll_after_s()

    def _apply(self, order: ApplyTable) -> list[RouterEvent]:
        self._unanswered = order.number
        try:
            self._router.apply(order.change)
        except GridStatError as error:
            return self._failed(error)
        return []

    def _failed(self, error: GridStatError) -> list[RouterEvent]:
        number, self._unanswered = self._unanswered, None
        return [TableFailed(number or 0, error.code, str(error.args[0]))]
