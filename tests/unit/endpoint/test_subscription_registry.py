"""Messages of the cloud on subscriptions, and their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gridstat.endpoint.change import Change, ChangeKind
from gridstat.endpoint.options import EventHandlers, SubscriptionSpec
from gridstat.endpoint.session_events import SubscriptionRestored
from gridstat.endpoint.subscriber import Subscription
from gridstat.model.errors import (
    ChannelFull,
    GridStatError,
    LatencyNotSatisfiable,
    Misuse,
    NoSuchVariable,
    TypeMismatch,
)
from gridstat.model.extrapolation import Polynomial
from gridstat.model.qos import ModalQos, Qos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, EventFlag, StatusEvent
from gridstat.net.codec.event import encode_event
from gridstat.net.codec.value import ValueCodec
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    ContractChanged,
    DoneOutcome,
    GrantedOutcome,
    Matched,
    PublicationChanged,
    RefusedOutcome,
    ReportLedger,
    Subscribe,
    Unpublished,
    Unsubscribe,
)
from tests.unit.endpoint.paper_grid import (
    MS,
    WALL_AHEAD_NS,
    PaperGrid,
    counters,
    granted,
    variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.model.status import StatusVariable

VOLTAGE = variable()
FULL = RefusedOutcome(
    code=ChannelFull.code,
    reason="no room",
    hint="ask for less",
    bottleneck="channel c1/e0 → c1/e1",
    shortfall="120 bytes/s",
)


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


def subscribe(grid: PaperGrid, of: StatusVariable = VOLTAGE, **words: Any) -> Subscription:
    grid.cloud.ready.append((granted(of, **words),))
    (found,) = grid.book.subscribe([SubscriptionSpec(of.name, ModalQos(), keep_events=1_000)])
    assert isinstance(found, Subscription), found
    return found


def cached(of: StatusVariable, value: float, created_ms: int) -> bytes:
    event = StatusEvent(
        created_ns=created_ms * MS + WALL_AHEAD_NS,
        variable_id=of.variable_id,
        payload=ValueCodec(of).encode(value),
        flags=EventFlag.CACHED,
    )
    return encode_event(event)


def test_a_grant_is_expected_with_its_terms(grid: PaperGrid) -> None:
    subscribe(grid, every=4, latency_ms=50)
    assert grid.receiver.expected == {1: (Period(1, 100), 4)}


def test_a_refusal_says_what_is_too_small_and_by_how_much(grid: PaperGrid) -> None:
    grid.cloud.ready.append((FULL, granted(VOLTAGE)))
    refused, good = grid.book.subscribe(
        [SubscriptionSpec("c1/x", ModalQos()), SubscriptionSpec("c1/a/v", ModalQos())]
    )
    assert isinstance(refused, ChannelFull)
    assert (refused.hint, refused.bottleneck) == ("ask for less", "channel c1/e0 → c1/e1")
    assert refused.shortfall == "120 bytes/s"
    assert isinstance(good, Subscription)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1034, NoSuchVariable), (1040, TypeMismatch), (1036, LatencyNotSatisfiable), (1999, None)],
)
def test_each_code_is_raised_as_its_own_class(
    grid: PaperGrid, code: int, kind: type[GridStatError] | None
) -> None:
    grid.cloud.ready.append((RefusedOutcome(code=code, reason="no"),))
    (found,) = grid.book.subscribe([SubscriptionSpec("c1/x", ModalQos())])
    assert isinstance(found, kind or GridStatError)


def test_many_go_in_requests_of_bounded_size(grid: PaperGrid) -> None:
    orders = [SubscriptionSpec(f"c1/{n}", ModalQos()) for n in range(2_500)]
    thousand = [32] * 31 + [8]
    expected = [*thousand, *thousand, *[32] * 15, 20]
    grid.cloud.ready += [(FULL,) * size for size in expected]
    assert len(grid.book.subscribe(orders)) == 2_500
    asked = [each.subscriptions for each in grid.cloud.asked if isinstance(each, Subscribe)]
    assert [len(each) for each in asked] == expected
    assert [one.name for each in asked for one in each] == [spec.name for spec in orders]


def test_the_newest_event_of_an_edge_fills_the_holder_and_calls_nobody(grid: PaperGrid) -> None:
    grid.cloud.newest = (cached(VOLTAGE, 5.0, 50), b"short")
    voltage = subscribe(grid)
    assert (voltage.value, voltage.is_cached) == (5.0, True)
    assert len(voltage.read()) == 0
    grid.send(VOLTAGE, (100, 6.0))
    assert (voltage.value, voltage.is_cached) == (6.0, False)


@pytest.mark.feature("S0-29")
def test_a_withdrawn_variable_sets_the_error_code_and_ends_the_subscription(
    grid: PaperGrid,
) -> None:
    voltage = subscribe(grid)
    notice = Unpublished(subscription_id=1, name=VOLTAGE.name)
    grid.book.notice_received(notice, ())
    grid.book.notice_received(notice, ())
    assert voltage.error_code == NoSuchVariable.code
    assert voltage.is_over
    assert grid.receiver.expected == {}
    with pytest.raises(Misuse, match="has ended"):
        voltage.change(QosRequest())


def test_a_variable_that_is_only_away_keeps_its_subscription(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    grid.book.notice_received(Unpublished(subscription_id=1, name=VOLTAGE.name, is_over=False), ())
    assert voltage.take_error_code() == NoSuchVariable.code
    assert not voltage.is_over
    grid.send(VOLTAGE, (100, 6.0))
    assert voltage.value == 6.0


def test_a_change_that_is_granted_holds_from_then_on(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    grid.cloud.ready.append((granted(VOLTAGE, every=5, latency_ms=40),))
    voltage.change(QosRequest(every=5))
    grid.work()
    command = grid.cloud.asked[-1]
    assert isinstance(command, ChangeSubscription)
    assert command.qos.modes[0].every == 5
    assert voltage.contract.granted[0].every == 5
    grid.send(VOLTAGE, *((10.0 * slot, 1.0) for slot in range(20)), latency_ms=41)
    assert voltage.ledger().delivered == 4
    assert voltage.ledger().late == 4


def test_a_change_that_is_refused_leaves_the_old_contract(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    grid.cloud.ready.append((FULL,))
    with pytest.raises(ChannelFull):
        voltage.change(QosRequest(every=1, latency_us=1))
    assert voltage.contract.granted[0].latency_us == 20_000


def test_a_contract_that_moved_to_other_paths_says_so(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    moved = msgspec.structs.replace(granted(VOLTAGE), degraded=("path 2 is down",))
    grid.book.notice_received(ContractChanged(granted=moved), ())
    grid.work()
    assert voltage.contract.degraded == ("path 2 is down",)
    grid.send(VOLTAGE, (100, 6.0))
    assert voltage.value == 6.0


def test_a_new_period_is_listened_to_before_the_old_one_ends(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    slower = variable(variable_id=9, period=Period(1, 50))
    notice = PublicationChanged(
        subscription_id=1,
        variable=slower,
        granted=granted(slower),
        from_ns=300 * MS + WALL_AHEAD_NS,
    )
    for _ in range(2):
        grid.book.notice_received(notice, ())
        grid.work()
    assert set(grid.receiver.expected) == {1, 9}
    for created_ms in range(0, 300, 10):
        grid.send(VOLTAGE, (created_ms, 1.0))
    for created_ms in range(300, 2_400, 20):
        grid.send(slower, (created_ms, 2.0))
        grid.work()
    assert len(voltage.read()) == 30 + 105
    assert voltage.value == 2.0
    assert set(grid.receiver.expected) == {9}
    assert (voltage.ledger().delivered, voltage.ledger().lost) == (30 + 105, 0)


def test_what_the_cloud_forgot_and_grants_again_stays_the_same_object(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    grid.receiver.counted[1] = counters(delivered=10, first_slot=1, last_slot=10)
    again = variable(variable_id=5)
    outcome = granted(again, 77)
    grid.book.restored(SubscriptionRestored(voltage.label, outcome, ()))
    assert set(grid.receiver.expected) == {5}
    grid.send(again, (100, 6.0))
    assert voltage.value == 6.0
    assert voltage.contract.subscription_id == 77
    grid.book.notice_received(Unpublished(subscription_id=77, name=VOLTAGE.name), ())
    assert voltage.is_over


def test_what_cannot_be_granted_again_says_why_until_it_can(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    grid.book.restored(SubscriptionRestored(voltage.label, FULL, ()))
    assert voltage.error_code == ChannelFull.code
    grid.book.restored(SubscriptionRestored(voltage.label, granted(VOLTAGE, 8), ()))
    assert voltage.error_code == 0


@pytest.mark.feature("S0-34")
def test_unsubscribing_ends_one_or_all(grid: PaperGrid) -> None:
    first = subscribe(grid)
    second = subscribe(grid, variable("c1/a/w", 2), subscription_id=2)
    first.unsubscribe()
    first.unsubscribe()
    assert grid.cloud.asked[-1] == Unsubscribe(subscription_ids=(1,))
    assert set(grid.receiver.expected) == {2}
    grid.book.unsubscribe_all()
    assert grid.cloud.asked[-1] == Unsubscribe()
    assert second.is_over
    assert grid.receiver.expected == {}


def test_asking_later_tells_of_each_name_what_became_of_it(grid: PaperGrid) -> None:
    other = variable("c1/a/w", 2)
    full = RefusedOutcome(code=ChannelFull.code, reason="no room")
    grid.cloud.ready.append((granted(VOLTAGE), full))
    orders = [SubscriptionSpec(VOLTAGE.name, ModalQos()), SubscriptionSpec(other.name, ModalQos())]
    waiting = grid.book.subscribe_later(orders)
    voltage, refused = waiting.result(timeout=0)
    assert isinstance(voltage, Subscription)
    assert isinstance(refused, ChannelFull)
    assert set(grid.receiver.expected) == {1}


def test_ledgers_are_reported_by_subscription(grid: PaperGrid) -> None:
    subscribe(grid, every=2)
    grid.receiver.counted[1] = counters(delivered=8, duplicate=7)
    for slot in (0, 2, 4, 10, 12, 14, 16):
        grid.send(VOLTAGE, (10 * slot, 1.0))
    grid.send(VOLTAGE, (180, 1.0), latency_ms=21)
    grid.wait_until(1_210)
    grid.book.report()
    command = grid.cloud.asked[-1]
    assert isinstance(command, ReportLedger)
    (entry,) = command.entries
    assert (entry.subscription_id, entry.expected, entry.delivered, entry.lost) == (1, 10, 8, 2)
    assert (entry.late, entry.duplicate, entry.copies) == (1, 7, (8, 7))


def test_ledgers_in_which_nothing_is_counted_are_not_reported(grid: PaperGrid) -> None:
    subscribe(grid)
    subscribe(grid, variable("c1/a/w", 2), subscription_id=2)
    before = len(grid.cloud.asked)
    grid.book.report()
    assert len(grid.cloud.asked) == before
    grid.receiver.counted[2] = counters(duplicate=1)
    grid.book.report()
    command = grid.cloud.asked[-1]
    assert isinstance(command, ReportLedger)
    assert [entry.subscription_id for entry in command.entries] == [2]


def test_modes_decide_what_is_due(grid: PaperGrid) -> None:
    fast = Qos(every=1, latency_us=10_000, redundancy=1, priority=3)
    slow = Qos(every=10, latency_us=20_000, redundancy=1, priority=3)
    outcome = GrantedOutcome(subscription_id=1, variable=VOLTAGE, granted={1: slow, 2: fast})
    grid.book.set_modes(0b010)
    grid.cloud.ready.append((outcome,))
    found = grid.book.subscribe([SubscriptionSpec(VOLTAGE.name, ModalQos())])
    assert grid.receiver.expected[1][1] == 10
    (voltage,) = found
    assert isinstance(voltage, Subscription)
    grid.send(VOLTAGE, *((10.0 * slot, 1.0) for slot in range(10)), latency_ms=15)
    assert (voltage.ledger().delivered, voltage.ledger().late) == (1, 0)
    grid.book.set_modes(0b100)
    grid.work()
    grid.send(VOLTAGE, *((10.0 * slot, 1.0) for slot in range(10, 20)), latency_ms=15)
    assert voltage.ledger().delivered == 1 + 10
    assert voltage.ledger().late == 10  # Only where the active mode promises 10 ms.


def test_a_pattern_hands_out_a_subscription_for_each_match(grid: PaperGrid) -> None:
    matched: list[str] = []
    grid.cloud.ready.append((GrantedOutcome(subscription_id=10, variable=None),))
    pattern = grid.book.subscribe_pattern(
        SubscriptionSpec("c1/*/v", ModalQos()), lambda found: matched.append(found.name)
    )
    other = variable("c1/b/v", 2)
    notice = Matched(pattern_id=10, granted=granted(other, 11))
    grid.book.notice_received(notice, (cached(other, 4.0, 10),))
    grid.book.notice_received(notice, ())
    grid.work()
    assert matched == ["c1/b/v"]
    (found,) = pattern.matches
    assert found.value == 4.0
    grid.send(other, (100, 5.0))
    assert found.value == 5.0
    grid.book.notice_received(Unpublished(subscription_id=11, name="c1/b/v"), ())
    assert pattern.matches == ()
    pattern.unsubscribe()
    assert grid.cloud.asked[-1] == Unsubscribe(subscription_ids=(10,))


def test_a_pattern_without_a_match_says_so_once_and_waits(
    grid: PaperGrid, caplog: pytest.LogCaptureFixture
) -> None:
    grid.cloud.ready.append((GrantedOutcome(subscription_id=10, variable=None),))
    pattern = grid.book.subscribe_pattern(SubscriptionSpec("c1/*/v", ModalQos()), None)
    grid.wait_until(1_999)
    assert (pattern.matched, caplog.messages) == (0, [])
    grid.wait_until(5_000)
    assert caplog.messages == ["no_match_yet pattern='c1/*/v' missed=0"]
    grid.book.notice_received(Matched(pattern_id=10, granted=granted(VOLTAGE, 11)), ())
    assert pattern.matched == 1


def test_a_pattern_that_matched_or_ended_meanwhile_warns_of_nothing(
    grid: PaperGrid, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (10, 20):
        grid.cloud.ready.append((GrantedOutcome(subscription_id=number, variable=None),))
    grid.book.subscribe_pattern(SubscriptionSpec("c1/*/v", ModalQos()), None)
    grid.book.notice_received(Matched(pattern_id=10, granted=granted(VOLTAGE, 11)), ())
    grid.book.subscribe_pattern(SubscriptionSpec("c2/*/v", ModalQos()), None).unsubscribe()
    grid.wait_until(5_000)
    assert caplog.messages == []


def test_a_match_that_this_end_cannot_have_is_named_with_its_reason(grid: PaperGrid) -> None:
    grid.cloud.ready.append((GrantedOutcome(subscription_id=10, variable=None),))
    order = SubscriptionSpec("c1/*/v", ModalQos(), handlers=EventHandlers(extrapolate=Polynomial()))
    pattern = grid.book.subscribe_pattern(order, None)
    switch = variable(value_type=BuiltinType.BOOL)
    notice = Matched(pattern_id=10, granted=granted(switch, 11))
    grid.book.notice_received(notice, ())
    grid.book.notice_received(notice, ())
    assert pattern.matched == 0
    (missed,) = pattern.missed
    assert missed.startswith("c1/a/v was not caught: c1/a/v cannot be extrapolated")


def test_a_match_ahead_of_its_pattern_waits_for_it(grid: PaperGrid) -> None:
    grid.book.notice_received(Matched(pattern_id=10, granted=granted(VOLTAGE, 11)), ())
    assert grid.receiver.expected == {}
    grid.cloud.ready.append((GrantedOutcome(subscription_id=10, variable=None),))
    pattern = grid.book.subscribe_pattern(SubscriptionSpec("c1/*/v", ModalQos()), None)
    assert [found.name for found in pattern.matches] == ["c1/a/v"]


def test_a_pattern_that_was_forgotten_catches_the_same_again(grid: PaperGrid) -> None:
    grid.cloud.ready.append((GrantedOutcome(subscription_id=10, variable=None),))
    pattern = grid.book.subscribe_pattern(SubscriptionSpec("c1/*/v", ModalQos()), None)
    grid.book.notice_received(Matched(pattern_id=10, granted=granted(VOLTAGE, 11)), ())
    (before,) = pattern.matches
    again = GrantedOutcome(subscription_id=20, variable=None)
    grid.book.restored(SubscriptionRestored(pattern.label, again, ()))
    grid.book.notice_received(
        Matched(pattern_id=20, granted=granted(variable(variable_id=3), 21)), ()
    )
    assert pattern.matches == (before,)
    assert set(grid.receiver.expected) == {3}


def test_batches_are_kept_up_to_a_bound_and_read_in_parts(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    grid.send(VOLTAGE, *((100 + 10 * n, float(n)) for n in range(10)))
    assert voltage.read(4)["value"].view(float).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert voltage.read()["value"].view(float).tolist() == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert len(voltage.read()) == 0


def test_arrow_has_values_by_their_type(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    grid.send(VOLTAGE, (100, 1.5), (110, 2.5))
    table = voltage.read_arrow()
    assert table.column("value").to_pylist() == [1.5, 2.5]
    assert table.column("created_ns").to_pylist()[0] == 100 * MS + WALL_AHEAD_NS


def test_reading_what_is_not_kept_says_how_to_keep_it(grid: PaperGrid) -> None:
    grid.cloud.ready.append((granted(VOLTAGE),))
    (voltage,) = grid.book.subscribe([SubscriptionSpec(VOLTAGE.name, ModalQos())])
    assert isinstance(voltage, Subscription)
    with pytest.raises(Misuse) as problem:
        voltage.read()
    assert "keep_events" in problem.value.hint


def test_an_unexpected_answer_is_no_subscription(grid: PaperGrid) -> None:
    grid.cloud.ready.append((DoneOutcome(),))
    (found,) = grid.book.subscribe([SubscriptionSpec("c1/x", ModalQos())])
    assert isinstance(found, Misuse)


def test_a_pattern_without_a_match_that_the_cloud_ends_is_reported(grid: PaperGrid) -> None:
    changes: list[Change] = []
    grid.cloud.ready.append((GrantedOutcome(subscription_id=9, variable=None),))
    spec = SubscriptionSpec("c1/**", ModalQos(), on_change=changes.append)
    pattern = grid.book.subscribe_pattern(spec, None)
    reason = "rule access: rule desks was revoked or changed; no rule lets a subscribe c1/**"
    ended = Unpublished(subscription_id=9, name="c1/**", code=1015, reason=reason)
    grid.book.notice_received(ended, ())
    grid.work()
    assert pattern.is_over
    ((kind, name, code, told, is_over),) = {
        (each.kind, each.name, each.code, each.reason, each.is_over) for each in changes
    }
    assert (kind, name, code, told, is_over) == (ChangeKind.PURGED, "c1/**", 1015, reason, True)
