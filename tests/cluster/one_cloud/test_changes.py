"""A publication changes its period under two contracts of one end-point."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.errors import Refused
from gridstat.model.rate_law import NS_PER_S, Period, slot_of
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS, is_too_late
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, WEST

if TYPE_CHECKING:
    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FAST, SLOW = Period(1, 60), Period(1, 30)


class ChangingStream:
    """Sends at every slot of whatever period holds for it, the stamp in us as the value.

    A slot that its edge might take for too old is left out.
    """

    def __init__(self, publication: Publication) -> None:
        self._publication = publication
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent: list[tuple[int, Period, int]] = []
        """Stamp, period, slot."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        stamp_ns = time.time_ns()
        while not self._is_over.is_set():
            period, stamp_ns = self._next(stamp_ns)
            time.sleep(max(0, stamp_ns - time.time_ns()) / NS_PER_S)
            if is_too_late(stamp_ns, DELAY_MS):
                continue
            if self._publication.send(stamp_ns / 1_000, created_ns=stamp_ns):
                self.sent.append((stamp_ns, period, slot_of(stamp_ns, period)))

    def _next(self, after_ns: int) -> tuple[Period, int]:
        """The next slot's stamp: of the announced period once it holds for that stamp."""
        old = self._publication.variable.period
        assert old is not None
        stamp_ns = _stamp_behind(after_ns, old)
        changes_ns = self._publication.changes_ns
        if stamp_ns < changes_ns:
            return old, stamp_ns
        new = SLOW if old == FAST else FAST
        return new, _stamp_behind(max(after_ns, changes_ns - 1), new)

    def count(self, period: Period) -> int:
        return sum(each[1] == period for each in self.sent)


def _stamp_behind(after_ns: int, period: Period) -> int:
    slot = slot_of(after_ns, period)
    while (stamp_ns := slot * period.seconds * NS_PER_S // period.per_seconds) <= after_ns:
        slot += 1
    return stamp_ns


def _stamps(subscription: Subscription) -> list[int]:
    found: list[int] = subscription.read()["created_ns"].tolist()
    return found


def refusal_of(publication: Publication, period: Period) -> str | None:
    """The last change is over some seconds after it held, and no other is taken until then."""
    try:
        publication.change_period(period)
    except Refused as refused:
        return str(refused)
    return None


@pytest.mark.feature("S0-75")
def test_two_contracts_of_one_variable_get_each_their_own_slots_through_changes_of_period(
    cloud: Cloud,
) -> None:
    publisher = cloud.connect("c1/changing/pmu", WEST)
    subscriber = cloud.connect("c1/changing/desk", EAST)
    stream = publisher.publish("value", BuiltinType.FLOAT64, period=FAST, delay_ms=DELAY_MS)
    every_sixth = qos(rate=10, latency_ms=30_000, redundancy=2)
    all_of_them = qos(latency_ms=30_000, redundancy=2)
    slow = subscriber.subscribe(stream.name, qos=every_sixth, keep_events=65_536)
    whole = subscriber.subscribe(stream.name, qos=all_of_them, keep_events=65_536)
    with ChangingStream(stream) as sending:
        eventually(lambda: None if sending.count(FAST) >= 60 else "too few at 60/s")
        eventually(lambda: None if slow.newest else "nothing has come")
        live = slow.newest
        stream.change_period(SLOW)
        eventually(lambda: None if sending.count(SLOW) >= 90 else "too few at 30/s")
        assert live is not None
        assert not live.is_cached
        before = sending.count(FAST)
        eventually(lambda: refusal_of(stream, FAST))
        eventually(lambda: None if sending.count(FAST) >= before + 120 else "too few at 60/s")
    sent = [stamp_ns for stamp_ns, _, _ in sending.sent]
    due = [stamp_ns for stamp_ns, period, slot in sending.sent if slot % _every(period) == 0]
    got: dict[str, list[int]] = {"whole": [], "slow": []}

    def missing() -> str | None:
        got["whole"] += _stamps(whole)
        got["slow"] += _stamps(slow)
        lost = set(sent) - set(got["whole"]), set(due) - set(got["slow"])
        return f"{len(lost[0])} and {len(lost[1])} of {len(sent)} lost" if any(lost) else None

    eventually(missing)
    assert got["whole"] == sent, "each once, in order"
    assert got["slow"] == due, "its own slots, and no others"
    for subscription, wanted in ((whole, sent), (slow, due)):
        subscription.unsubscribe()
        ledger = subscription.ledger()
        assert ledger.delivered == len(wanted)
        assert ledger.expected == ledger.delivered + ledger.lost
        assert ledger.lost <= _holes(sending), str(ledger)
        assert ledger.recovered == 0
        assert ledger.duplicate > 0


def _every(period: Period) -> int:
    return period.per_seconds // 10


def _holes(sending: ChangingStream) -> int:
    """Slots that an overloaded publisher has left out."""
    return sum(
        after[2] - before[2] - 1
        for before, after in zip(sending.sent, sending.sent[1:], strict=False)
        if before[1] == after[1]
    )


def test_a_second_contract_leaves_the_first_ones_live_value_as_it_is(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/live/pmu", WEST)
    subscriber = cloud.connect("c1/live/desk", EAST)
    minutely = Period(60, 1)
    stream = publisher.publish("value", BuiltinType.FLOAT64, period=minutely, delay_ms=DELAY_MS)
    first = subscriber.subscribe(stream.name)
    stream.send(5.0)
    eventually(lambda: None if first.value == 5.0 else "nothing has come")
    live = first.newest
    second = subscriber.subscribe(stream.name)
    eventually(lambda: None if second.value == 5.0 else "the kept value has not come")
    assert second.is_cached
    assert first.newest == live
    assert not first.is_cached
