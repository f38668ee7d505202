"""The checker finds what was lost, doubled, altered, late or never sent, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gridstat.model.rate_law import Period
from lab.ledger import (
    ENTRY,
    Entries,
    EventLog,
    LogTail,
    Verdict,
    Window,
    due,
    entries_of,
    judge,
    read_log,
)

if TYPE_CHECKING:
    from pathlib import Path

FLIGHT_NS = 2_000


def published(count: int = 10, *, variable: int = 7) -> Entries:
    created_ns = 1_000 * np.arange(1, count + 1)
    return entries_of(variable, created_ns, created_ns * 3, created_ns + 1)


def arriving(sent: Entries, *, flight_ns: int = FLIGHT_NS) -> Entries:
    came = sent.copy()
    came["at_ns"] = sent["created_ns"] + np.uint64(flight_ns)
    return came


def test_all_that_was_sent_and_came_once_is_clean() -> None:
    verdict = judge(published(), arriving(published()), Window())
    assert verdict == Verdict(expected=10, delivered=10, latency_ns_max=FLIGHT_NS)
    assert verdict.is_clean


def test_the_order_of_arrival_does_not_matter() -> None:
    assert judge(published(), arriving(published())[::-1], Window()).is_clean


def test_what_did_not_come_is_lost() -> None:
    verdict = judge(published(), arriving(published())[1:], Window())
    assert verdict.lost == [(7, 1_000)]
    assert not verdict.is_clean


def test_what_came_twice_is_a_duplicate_and_delivered_once() -> None:
    came = arriving(published())
    verdict = judge(published(), np.concatenate([came, came[4:5]]), Window())
    assert (verdict.duplicate, verdict.delivered) == ([(7, 5_000)], 10)
    assert not verdict.is_clean


def test_another_value_is_altered() -> None:
    came = arriving(published())
    came["value"][3] += 1
    verdict = judge(published(), came, Window())
    assert verdict.altered == [(7, 4_000)]
    assert not verdict.is_clean


def test_what_nobody_sent_is_unpublished() -> None:
    verdict = judge(published()[:9], arriving(published()), Window())
    assert verdict.unpublished == [(7, 10_000)]
    assert not verdict.is_clean


def test_the_same_time_of_another_variable_is_another_event() -> None:
    verdict = judge(published(variable=7), arriving(published(variable=8)), Window())
    assert len(verdict.lost) == len(verdict.unpublished) == 10


def test_what_took_too_long_is_late_and_still_delivered() -> None:
    came = arriving(published())
    came["at_ns"][0] += 1
    verdict = judge(published(), came, Window(), latency_ns_max=FLIGHT_NS)
    assert (verdict.late, verdict.delivered, verdict.is_clean) == (1, 10, True)


def test_only_events_created_in_the_window_count() -> None:
    verdict = judge(published(), arriving(published())[:0], Window(2_000, 4_000))
    assert verdict.lost == [(7, 2_000), (7, 3_000)]


def test_a_slower_subscription_expects_its_own_slots_only() -> None:
    period = Period(1, 60)
    created_ns = [round(slot * 1_000_000_000 / 60) for slot in range(600)]
    sent = entries_of(7, np.array(created_ns), 0, 0)
    assert due(sent, period, 3)["created_ns"].tolist() == created_ns[::3]


def test_a_log_is_read_while_it_grows_and_a_torn_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert read_log(path).size == 0
    with EventLog(path) as log:
        log.append(published(3))
        assert read_log(path).tolist() == published(3).tolist()
        log.append(published(2))
    with path.open("ab") as file:
        file.write(bytes(ENTRY.itemsize - 1))
    assert read_log(path).size == 5


def test_a_tail_reads_on_and_forgets_what_is_judged(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "log")
    assert tail.entries().size == 0
    with EventLog(tmp_path / "log") as log:
        log.append(published(3))
        assert tail.entries().size == 3
        tail.forget_before(3_000)
        log.append(published(2, variable=8))
        assert tail.entries()["variable"].tolist() == [7, 8, 8]
        assert tail.entries().size == 3


def test_verdicts_add_up() -> None:
    clean = judge(published(), arriving(published()), Window())
    lossy = judge(published(), arriving(published())[1:], Window())
    both = clean + lossy
    assert (both.expected, both.delivered, both.lost) == (20, 19, [(7, 1_000)])
    assert "expected 20 delivered 19 lost 1 duplicate 0" in str(both)
