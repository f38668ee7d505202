"""Reports of end-points on their paths: the broker keeps only entries that can be true."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.broker.requests.queries import COUNT_MAX, kept_ledger
from gridstat.net.command.endpoint_messages import (
    LEDGER_PATHS_MAX,
    LedgerEntry,
    PathEntry,
    ReportLedger,
)
from tests.unit.broker.conversation import pair
from tests.unit.broker.stand_ins import CENTRE, VOLTAGE

UPPER = PathEntry("path 1", ("a", "b"), expected=10, delivered=9, lost=1, first=9, late=9)
LOWER = PathEntry("path 2", ("a", "c"), expected=10, delivered=8, lost=2)
LEFT = PathEntry("path 2", ("a", "d"), expected=3, delivered=3, is_open=False)


def ledger(*paths: PathEntry) -> LedgerEntry:
    return LedgerEntry(subscription_id=1, expected=10, delivered=10, paths=paths)


@pytest.mark.parametrize(
    "path",
    [
        PathEntry("path 2", ("a", "c"), lost=5),
        PathEntry("path 2", ("a", "c"), expected=5, delivered=4),
        PathEntry("path 2", ("a", "c"), expected=5, delivered=5, first=6),
        PathEntry("path 2", ("a", "c"), expected=5, delivered=5, late=6),
        PathEntry("path 2", ("a", "c"), expected=COUNT_MAX + 1, delivered=COUNT_MAX + 1),
        PathEntry("path 2", ("a", "c"), one_in=COUNT_MAX + 1),
        PathEntry("path 2", UPPER.routers, expected=5, delivered=5),
    ],
    ids=["lost of none", "sum", "first", "late", "too many", "one in too many", "same routers"],
)
def test_paths_that_cannot_be_true_are_left_out(path: PathEntry) -> None:
    assert kept_ledger(ledger(UPPER, path), ledger(UPPER, LOWER)) == ledger()


def test_two_sums_of_earlier_paths_cannot_be_true() -> None:
    earlier = PathEntry("earlier paths", is_open=False)
    assert kept_ledger(ledger(UPPER, earlier), None) == ledger(UPPER, earlier)
    assert kept_ledger(ledger(UPPER, earlier, earlier), None) == ledger()


def test_paths_that_were_left_stay_as_they_were_told_last() -> None:
    before = kept_ledger(ledger(UPPER, LEFT), ledger(LOWER))
    assert before == ledger(UPPER, LEFT), "whoever tells of any that was left tells of all"
    assert kept_ledger(ledger(LOWER), before).paths == (
        LOWER,
        msgspec.structs.replace(UPPER, is_open=False),
        LEFT,
    )
    assert kept_ledger(ledger(), before) == ledger()


def test_no_more_paths_are_kept_than_may_be_told() -> None:
    many = [PathEntry("p", (str(at),), is_open=False) for at in range(LEDGER_PATHS_MAX)]
    kept = kept_ledger(ledger(UPPER, LOWER), ledger(*many)).paths
    assert kept == (UPPER, LOWER, *many[: LEDGER_PATHS_MAX - 2])


def test_the_broker_keeps_of_a_report_only_what_can_be_true() -> None:
    cloud = pair()
    cloud.publish(VOLTAGE, "c1/e0")
    outcome = cloud.subscribe(CENTRE, "c1/e3", VOLTAGE)
    bad = msgspec.structs.replace(UPPER, expected=0)
    for paths, kept in (((UPPER, LOWER), (UPPER, LOWER)), ((bad, LOWER), ())):
        entry = msgspec.structs.replace(ledger(*paths), subscription_id=outcome.subscription_id)
        cloud.ask(CENTRE, "c1/e3", ReportLedger(entries=(entry,)))
        (found,) = cloud.broker.ledgers()
        assert (found[3].paths, found[3].delivered) == (kept, 10)
