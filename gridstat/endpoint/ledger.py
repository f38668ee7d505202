"""The ledger of one subscription: what its contract promised, and what came of it.

Every due slot whose window is closed is expected; expected = delivered + lost, and none of the
counts ever falls, so that they can be summed up and compared by whoever watches.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from gridstat.net.command.endpoint_messages import LedgerEntry

if TYPE_CHECKING:
    from gridstat.endpoint.path_ledger import PathLedger


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts since the subscription began; `copies` by edge router, in the order of attachment,
    `paths` by path, in the order of the contract and then those that it has left.

    `late` counts among the delivered, and only where the time stamp is good; `unknown` counts those
    where it is not. `extrapolated` values stand in for some of the lost or late. `recovered` events
    came when their slot was lost already: the application has them, the contract does not.
    `dropped` came in time, and were lost to a reader of the application that had fallen behind.
    """

    expected: int = 0
    delivered: int = 0
    late: int = 0
    lost: int = 0
    duplicate: int = 0
    extrapolated: int = 0
    unknown: int = 0
    recovered: int = 0
    dropped: int = 0
    copies: tuple[int, ...] = ()
    paths: tuple[PathLedger, ...] = ()

    def __add__(self, other: Ledger) -> Ledger:
        if self == NOTHING:
            return other
        if other == NOTHING:
            return self
        copies = (a + b for a, b in zip_longest(self.copies, other.copies, fillvalue=0))
        return Ledger(
            expected=self.expected + other.expected,
            delivered=self.delivered + other.delivered,
            late=self.late + other.late,
            lost=self.lost + other.lost,
            duplicate=self.duplicate + other.duplicate,
            extrapolated=self.extrapolated + other.extrapolated,
            unknown=self.unknown + other.unknown,
            recovered=self.recovered + other.recovered,
            dropped=self.dropped + other.dropped,
            copies=tuple(copies),
            paths=self.paths + other.paths,
        )

    @property
    def is_blank(self) -> bool:
        """Whether nothing has been counted yet."""
        counts = self.expected, self.duplicate, self.extrapolated, self.recovered, self.dropped
        return not any(counts)

    def entry(self, subscription_id: int, asked_variable_id: int = 0) -> LedgerEntry:
        """As it is reported to the broker; of one path alone there is nothing to add."""
        paths = self.paths if len(self.paths) > 1 else ()
        return LedgerEntry(
            subscription_id=subscription_id,
            expected=self.expected,
            delivered=self.delivered,
            late=self.late,
            lost=self.lost,
            duplicate=self.duplicate,
            extrapolated=self.extrapolated,
            unknown=self.unknown,
            recovered=self.recovered,
            dropped=self.dropped,
            copies=self.copies,
            paths=tuple([path.entry() for path in paths]),
            variable_id=asked_variable_id,
        )


NOTHING: Final = Ledger()
