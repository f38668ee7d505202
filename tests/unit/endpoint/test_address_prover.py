"""Answers to edges that ask for a proof of an address."""

from __future__ import annotations

from gridstat.endpoint.address_prover import ANSWERED_MAX, ASKED_NS_MAX, AddressProver
from gridstat.net.command.endpoint_messages import ProveAddress


class Station:
    """Newest counters by channel, and a clock."""

    def __init__(self) -> None:
        self.counters: dict[int, int] = {}
        self.now_ns = 0
        self.prover = AddressProver(self.counters.get, clock_ns=self._clock_ns)

    def _clock_ns(self) -> int:
        return self.now_ns


def test_the_first_counter_that_comes_is_the_answer() -> None:
    station = Station()
    station.prover.ask("e1", 7)
    assert station.prover.step() == []
    assert station.prover.is_asked
    station.counters[7] = 2**40
    assert station.prover.step() == [("e1", ProveAddress(channel_id=7, counter=2**40))]
    assert station.prover.step() == []


def test_a_counter_that_was_wrong_is_not_said_again() -> None:
    station = Station()
    station.counters[7] = 5
    station.prover.ask("e1", 7)
    assert len(station.prover.step()) == 1
    station.prover.ask("e1", 7)
    assert station.prover.step() == []
    station.counters[7] = 6
    assert station.prover.step() == [("e1", ProveAddress(channel_id=7, counter=6))]


def test_a_question_that_cannot_be_answered_is_forgotten() -> None:
    station = Station()
    station.prover.ask("e1", 7)
    station.now_ns = ASKED_NS_MAX
    assert station.prover.step() == []
    assert not station.prover.is_asked


def test_questions_and_answers_are_kept_within_a_bound() -> None:
    station = Station()
    station.counters = dict.fromkeys(range(1, 3 * ANSWERED_MAX), 5)
    station.prover = AddressProver(station.counters.get, clock_ns=station._clock_ns)
    for channel_id in station.counters:
        station.prover.ask("e1", channel_id)
    assert len(station.prover.step()) == ANSWERED_MAX
    for channel_id in reversed(station.counters):
        station.prover.ask("e1", channel_id)
        station.prover.step()
    assert len(station.prover._answered) == ANSWERED_MAX
