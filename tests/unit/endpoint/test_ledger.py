"""Ledger of a contract: the promise against the events that came, summed up and reported."""

from __future__ import annotations

import msgspec

from gridstat.endpoint.ledger import ENTRY_BYTES, HOUR_NS, Ledger, frames_of
from gridstat.model.latency_histogram import BUCKETS
from gridstat.net.command.endpoint_messages import (
    LEDGER_COUNTS,
    LEDGER_PATHS_MAX,
    LedgerEntry,
    PathEntry,
    ReportLedger,
)
from gridstat.net.command.frames import FRAME_BYTES_MAX
from gridstat.net.command.session_messages import MANY_MAX

COUNT = 2**63


def test_ledgers_of_one_subscription_add_up() -> None:
    first = Ledger(expected=5, delivered=4, lost=1, recovered=1, copies=(4,))
    second = Ledger(expected=3, delivered=3, duplicate=3, copies=(3, 3))
    assert first + second == Ledger(
        expected=8, delivered=7, lost=1, duplicate=3, recovered=1, copies=(7, 3)
    )


def test_what_is_told_to_the_cloud_leaves_nothing_out() -> None:
    entry = Ledger(expected=5, delivered=4, lost=1, recovered=1, copies=(4,)).entry(9)
    assert (entry.subscription_id, entry.expected, entry.delivered, entry.lost) == (9, 5, 4, 1)
    assert (entry.recovered, entry.copies) == (1, (4,))


def test_a_contract_over_which_nothing_came_is_not_blank() -> None:
    assert Ledger().is_blank
    assert not Ledger(expected=1, lost=1).is_blank


def test_reports_fit_in_a_frame_however_many_paths_there_are_and_nothing_is_left_out() -> None:
    routers = tuple(f"c1/région-nord/poste-{at:03}/routeur" for at in range(8))
    path = PathEntry("path 1", routers, COUNT, COUNT, COUNT, COUNT, COUNT, one_in=COUNT)
    paths = (path,) * LEDGER_PATHS_MAX
    totals = dict.fromkeys(LEDGER_COUNTS, COUNT)
    entries = [
        LedgerEntry(
            COUNT + at,
            **totals,
            copies=(COUNT,) * 8,
            paths=paths,
            variable_id=COUNT,
            latency_counts=(COUNT,) * BUCKETS,
            gap_slots_max=COUNT,
            gap_ended_ns=COUNT,
        )
        for at in range(2 * MANY_MAX)
    ]
    reports = list(frames_of(entries))
    assert [entry for report in reports for entry in report] == entries
    for report in reports:
        assert len(report) <= MANY_MAX
        size_bytes = len(msgspec.msgpack.encode(ReportLedger(entries=report)))
        assert size_bytes <= FRAME_BYTES_MAX // 2
    assert len(reports) <= 24, "frames are not sent half empty"


def test_a_full_entry_is_no_bigger_than_it_is_reckoned() -> None:
    totals = dict.fromkeys(LEDGER_COUNTS, COUNT)
    entry = LedgerEntry(
        COUNT,
        **totals,
        copies=(COUNT,) * 8,
        paths=(),
        variable_id=COUNT,
        latency_counts=(COUNT,) * BUCKETS,
        gap_slots_max=COUNT,
        gap_ended_ns=COUNT,
    )
    assert len(msgspec.msgpack.encode(entry)) <= ENTRY_BYTES


def test_latencies_add_up_and_the_worst_gap_of_the_newest_hour_stays() -> None:
    one = Ledger(expected=9, lost=9, latency_counts=(1, 2), gap_slots_max=9, gap_ended_ns=5)
    two = Ledger(expected=1, latency_counts=(0, 1, 4), gap_slots_max=3, gap_ended_ns=7)
    both = one + two
    assert both.latency_counts == (1, 3, 4)
    assert (both.gap_slots_max, both.gap_ended_ns) == (9, 5)
    later = both + Ledger(gap_slots_max=1, gap_ended_ns=HOUR_NS)
    assert (later.gap_slots_max, later.gap_ended_ns) == (1, HOUR_NS)
    entry = later.entry(3)
    assert entry.latency_counts == (1, 3, 4)
    assert (entry.gap_slots_max, entry.gap_ended_ns) == (1, HOUR_NS)


def test_without_paths_only_the_number_of_ledgers_cuts_a_report() -> None:
    reports = list(frames_of(LedgerEntry(at) for at in range(2 * MANY_MAX + 1)))
    assert [len(report) for report in reports] == [MANY_MAX, MANY_MAX, 1]
    assert list(frames_of(())) == []
