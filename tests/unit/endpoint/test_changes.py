"""Notices on subscriptions to an application: moved, lowered, broken, purged, restored."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gridstat.endpoint.change import Change, ChangeKind, Subject, compare
from gridstat.endpoint.change_stream import ChangeFollowers
from gridstat.endpoint.contract import contract_of
from gridstat.endpoint.options import SubscriptionSpec
from gridstat.endpoint.session_events import SubscriptionRestored
from gridstat.endpoint.subscriber import Subscription
from gridstat.model.errors import ChannelFull, NoSuchVariable
from gridstat.model.qos import ModalQos, Qos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ContractChanged,
    GrantedOutcome,
    GrantedPath,
    PublicationChanged,
    RefusedOutcome,
    ReportLedger,
    Unpublished,
)
from tests.unit.endpoint.paper_grid import PaperGrid, variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VOLTAGE = variable()
DIRECT = ("c1/e0", "c1/e1")
ROUND = ("c1/e0", "c1/i0", "c1/e1")
OTHER = ("c1/e0", "c1/i1", "c1/e1")


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


def contract(
    *ways: tuple[str, ...], down: tuple[str, ...] | None = None, number: int = 1, **words: Any
) -> GrantedOutcome:
    paths = tuple(
        GrantedPath(
            routers=way,
            channel_ids=tuple(hash(pair) % 1_000 for pair in pairwise(way)),
            latency_us=1_000,
            name=f"path {at}",
        )
        for at, way in enumerate(ways, start=1)
    )
    priority = words.pop("priority", 3)
    qos = Qos(every=words.pop("every", 1), latency_us=20_000, redundancy=1, priority=priority)
    return GrantedOutcome(
        subscription_id=number,
        variable=VOLTAGE,
        granted={0: qos},
        paths=paths,
        paths_down=down,
        **words,
    )


def subscribe(
    grid: PaperGrid, *ways: tuple[str, ...], on_change: Callable[[Change], object] | None = None
) -> Subscription:
    grid.cloud.ready.append((contract(*(ways or (DIRECT, ROUND))),))
    (found,) = grid.book.subscribe(
        [SubscriptionSpec(VOLTAGE.name, ModalQos(), on_change=on_change)]
    )
    assert isinstance(found, Subscription), found
    return found


def tell(grid: PaperGrid, *outcomes: GrantedOutcome) -> None:
    for outcome in outcomes:
        grid.book.notice_received(ContractChanged(granted=outcome), ())
    grid.work()


def kinds(told: list[Change]) -> list[str]:
    return [str(change.kind) for change in told]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([contract(DIRECT, ROUND, down=())], []),
        ([contract(DIRECT, OTHER, down=())], ["moved"]),
        ([contract(DIRECT, ROUND, down=("path 2",))], ["lowered"]),
        ([contract(DIRECT, ROUND, down=("path 2",))] * 2, ["lowered"]),
        ([contract(DIRECT, ROUND, down=("path 1", "path 2"))], ["broken"]),
        ([contract(DIRECT, ROUND, down=(), every=2)], ["lowered"]),
        ([contract(DIRECT, ROUND, down=(), shares_edge=True)], ["lowered"]),
        ([contract(DIRECT, ROUND, down=(), priority=4)], ["lowered"]),
        ([contract(DIRECT, ROUND, down=(), priority=2)], []),
        ([contract(DIRECT, OTHER, down=("path 1",))], ["moved", "lowered"]),
        (
            [contract(DIRECT, ROUND, down=("path 2",)), contract(DIRECT, ROUND, down=())],
            ["lowered", "restored"],
        ),
        (
            [
                contract(DIRECT, ROUND, down=("path 1", "path 2")),
                contract(DIRECT, ROUND, down=("path 1",)),
                contract(DIRECT, ROUND, down=()),
            ],
            ["broken", "lowered", "restored"],
        ),
        (
            [contract(DIRECT, ROUND, down=("path 1", "path 2")), contract(DIRECT, ROUND, down=())],
            ["broken", "restored"],
        ),
        # Lowered within its band, raised in part, and raised to what was granted.
        (
            [contract(DIRECT, ROUND, down=(), every=every) for every in (4, 2, 1)],
            ["lowered", "restored", "restored"],
        ),
        # A broker that does not say which paths are down.
        (
            [contract(DIRECT, ROUND, degraded=("path 2 is down",)), contract(DIRECT, ROUND)],
            ["lowered", "restored"],
        ),
    ],
)
def test_a_changed_contract_is_told_by_what_is_different(
    grid: PaperGrid, outcomes: list[GrantedOutcome], expected: list[str]
) -> None:
    own: list[Change] = []
    found = subscribe(grid, on_change=own.append)
    tell(grid, *outcomes)
    assert kinds(own) == expected
    assert grid.told == own
    assert all(change.name == VOLTAGE.name for change in own)
    assert all(change.subject is Subject.SUBSCRIPTION for change in own)
    if own:
        assert own[-1].contract == found.contract


def test_the_reason_is_what_the_broker_says_of_it(grid: PaperGrid) -> None:
    subscribe(grid)
    words = "path 2 is down: nothing is received from router c1/i0"
    tell(grid, contract(DIRECT, ROUND, down=("path 2",), degraded=("rounded", words)))
    assert [change.reason for change in grid.told] == [f"rounded; {words}"]


def test_an_older_notice_by_the_other_edge_changes_nothing_back(grid: PaperGrid) -> None:
    found = subscribe(grid)
    down = ContractChanged(granted=contract(DIRECT, ROUND, down=("path 2",)), order=(3, 1))
    mended = ContractChanged(granted=contract(DIRECT, ROUND, down=()), order=(3, 2))
    for notice in (down, mended, down, mended):
        grid.book.notice_received(notice, ())
    grid.work()
    assert kinds(grid.told) == ["lowered", "restored"]
    assert found.contract.paths_down == ()
    grid.book.notice_received(
        ContractChanged(granted=contract(DIRECT, ROUND, down=("path 1",)), order=(4, 1)), ()
    )
    grid.work()
    assert kinds(grid.told) == ["lowered", "restored", "lowered"]


def test_an_older_notice_does_not_replace_the_answer_to_a_change(grid: PaperGrid) -> None:
    """The slow edge brings the notice; the edge of the answer had no session at that time."""
    found = subscribe(grid)
    grid.cloud.ready.append((contract(DIRECT, OTHER, every=2, order=(3, 5)),))
    found.change(QosRequest(every=2))
    old = ContractChanged(granted=contract(DIRECT, ROUND, down=("path 2",)), order=(3, 4))
    grid.book.notice_received(old, ())
    grid.work()
    assert found.contract.granted[0].every == 2
    assert found.contract.paths[1].routers == OTHER
    assert grid.told == []


def test_an_older_notice_does_not_replace_the_answer_to_a_subscription(grid: PaperGrid) -> None:
    grid.cloud.ready.append((contract(DIRECT, OTHER, order=(3, 5)),))
    (found,) = grid.book.subscribe([SubscriptionSpec(VOLTAGE.name, ModalQos())])
    assert isinstance(found, Subscription)
    old = ContractChanged(granted=contract(DIRECT, ROUND, down=()), order=(3, 4))
    grid.book.notice_received(old, ())
    grid.work()
    assert found.contract.paths[1].routers == OTHER


def test_an_answer_does_not_replace_a_notice_that_was_sent_after_its_decision(
    grid: PaperGrid,
) -> None:
    """A path fails while the routers confirm the changed contract."""
    found = subscribe(grid)
    late = contract(DIRECT, ROUND, every=2, down=("path 2",))
    grid.book.notice_received(ContractChanged(granted=late, order=(3, 6)), ())
    grid.cloud.ready.append((contract(DIRECT, ROUND, every=2, order=(3, 5)),))
    found.change(QosRequest(every=2))
    grid.work()
    assert found.contract.paths_down == ("path 2",)
    tell(grid, contract(DIRECT, ROUND, every=2, down=()))
    assert kinds(grid.told)[-1] == "restored"  # As far as the change has lowered it.


def test_a_contract_that_is_granted_again_takes_the_notices_that_follow(grid: PaperGrid) -> None:
    """The new broker begins to count anew."""
    found = subscribe(grid)
    grid.book.notice_received(
        ContractChanged(granted=contract(DIRECT, ROUND, down=("path 2",)), order=(3, 6)), ()
    )
    outcome = contract(DIRECT, OTHER, number=9, order=(1, 1))
    grid.book.restored(SubscriptionRestored(found.label, outcome))
    assert found.contract.paths_down is None
    for order, down in (((1, 1), "path 1"), ((1, 2), "path 2")):
        notice = contract(DIRECT, OTHER, number=9, down=(down,))
        grid.book.notice_received(ContractChanged(granted=notice, order=order), ())
    grid.work()
    assert found.contract.paths_down == ("path 2",)


def test_a_repeated_change_of_period_does_not_bring_an_older_contract_back(
    grid: PaperGrid,
) -> None:
    """The second edge, or a repetition, brings it after the notice that paths are down."""
    found = subscribe(grid)
    period = PublicationChanged(
        subscription_id=1,
        variable=VOLTAGE,
        granted=contract(DIRECT, ROUND),
        from_ns=0,
        order=(3, 1),
    )
    down = ContractChanged(granted=contract(DIRECT, ROUND, down=("path 2",)), order=(3, 2))
    for notice in (period, down, period, down):
        grid.book.notice_received(notice, ())
    grid.work()
    assert found.contract.paths_down == ("path 2",)


def test_the_order_inside_a_change_of_period_is_not_used(grid: PaperGrid) -> None:
    found = subscribe(grid)
    inner = contract(DIRECT, ROUND, every=2, order=(3, 1))
    period = PublicationChanged(
        subscription_id=1, variable=VOLTAGE, granted=inner, from_ns=0, order=(3, 2)
    )
    grid.book.notice_received(period, ())
    grid.work()
    assert found.contract == found.granted_contract
    assert found.notice_order == (3, 2)


def test_a_contract_is_restored_to_what_it_was_under_the_new_period(grid: PaperGrid) -> None:
    """The publisher doubles its rate, and every second slot is the interval of before."""
    subscribe(grid)
    now = contract(DIRECT, ROUND, every=2)
    grid.book.notice_received(
        PublicationChanged(subscription_id=1, variable=VOLTAGE, granted=now, from_ns=0), ()
    )
    tell(grid, contract(DIRECT, ROUND, every=2, down=("path 1", "path 2")))
    tell(grid, contract(DIRECT, ROUND, every=2, down=()))
    assert kinds(grid.told) == ["broken", "restored"]


def test_the_broker_hears_which_contracts_are_held_for_impaired(grid: PaperGrid) -> None:
    subscribe(grid)
    grid.book.report()
    assert not any(isinstance(each, ReportLedger) for each in grid.cloud.asked)
    tell(grid, contract(DIRECT, ROUND, down=("path 2",)))
    grid.book.report()
    assert grid.cloud.asked[-1] == ReportLedger(entries=(), impaired=(1,))
    tell(grid, contract(DIRECT, ROUND, down=()))
    before = len(grid.cloud.asked)
    grid.book.report()
    assert len(grid.cloud.asked) == before


def test_a_withdrawn_variable_is_purged_and_ends_the_streams(grid: PaperGrid) -> None:
    found = subscribe(grid)
    stream = found.changes()
    notice = Unpublished(subscription_id=1, name=VOLTAGE.name)
    grid.book.notice_received(notice, ())
    grid.book.notice_received(notice, ())
    (change,) = stream
    assert (change.kind, change.code, change.is_over) == (
        ChangeKind.PURGED,
        NoSuchVariable.code,
        True,
    )
    assert list(found.changes()) == []


def test_a_contract_that_the_broker_ends_says_why(grid: PaperGrid) -> None:
    found = subscribe(grid)
    notice = Unpublished(
        subscription_id=1, name=VOLTAGE.name, code=ChannelFull.code, reason="no room is left"
    )
    grid.book.notice_received(notice, ())
    grid.work()
    (change,) = grid.told
    assert (change.code, change.reason) == (ChannelFull.code, "no room is left")
    assert found.error_code == ChannelFull.code


def test_a_variable_that_is_waited_for_is_purged_once_and_not_over(grid: PaperGrid) -> None:
    found = subscribe(grid)
    notice = Unpublished(subscription_id=1, name=VOLTAGE.name, is_over=False)
    grid.book.notice_received(notice, ())
    grid.book.notice_received(notice, ())
    grid.work()
    assert [(change.kind, change.is_over) for change in grid.told] == [(ChangeKind.PURGED, False)]
    assert not found.is_over


def test_what_the_cloud_has_forgotten_is_purged_refused_and_restored(grid: PaperGrid) -> None:
    found = subscribe(grid)
    full = RefusedOutcome(code=ChannelFull.code, reason="no room")
    grid.book.registrations_lost()
    grid.book.restored(SubscriptionRestored(found.label, full))
    grid.book.restored(SubscriptionRestored(found.label, full))
    grid.book.restored(SubscriptionRestored(found.label, contract(DIRECT, OTHER, number=9)))
    grid.work()
    assert [(str(change.kind), change.code) for change in grid.told] == [
        ("purged", 3),
        ("purged", ChannelFull.code),
        ("restored", 0),
    ]
    assert grid.told[-1].contract == found.contract
    # The new contract is what is compared from now on.
    tell(grid, contract(DIRECT, OTHER, number=9, down=()))
    assert len(grid.told) == 3


def test_a_lost_edge_is_told_to_everybody_once_and_its_return_with_its_code(
    grid: PaperGrid,
) -> None:
    own: list[Change] = []
    subscribe(grid, on_change=own.append)
    grid.notifier.edge_attached("c1/e0", 1, 0, grid.book.followers())  # It was not lost before.
    grid.notifier.edge_lost("c1/e0", 1, grid.book.followers())
    grid.notifier.edge_attached("c1/e0", 2, 4, grid.book.followers())
    grid.work()
    facts = [(str(each.kind), each.name, each.edges_left, each.code) for each in own]
    assert facts == [("edge_lost", "c1/e0", 1, 0), ("restored", "c1/e0", 2, 4)]
    assert grid.told == own


def test_a_callback_that_raises_is_reported_and_stops_nobody(
    grid: PaperGrid, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(change: Change) -> None:
        raise ValueError(str(change.kind))

    subscribe(grid, on_change=fail)
    tell(grid, contract(DIRECT, OTHER, down=()), contract(DIRECT, OTHER, down=("path 1",)))
    assert kinds(grid.told) == ["moved", "lowered"]
    # A second failure within a second is counted, not reported. Records are looked at, since
    # Spark gives the handlers of its process another format.
    reported = [each.exc_info[0] for each in caplog.records if each.exc_info]
    assert set(reported) == {ValueError}


def test_callbacks_run_where_deliveries_do_and_in_order(grid: PaperGrid) -> None:
    own: list[Change] = []
    subscribe(grid, on_change=own.append)
    grid.book.notice_received(ContractChanged(granted=contract(DIRECT, OTHER, down=())), ())
    grid.book.notice_received(
        ContractChanged(granted=contract(DIRECT, OTHER, down=("path 1",))), ()
    )
    assert own == []  # Not on the session's thread.
    grid.work()
    assert kinds(own) == ["moved", "lowered"]


def change(number: int) -> Change:
    return Change(ChangeKind.MOVED, Subject.SUBSCRIPTION, f"c1/{number}", number)


def test_a_stream_drops_the_oldest_and_counts_them() -> None:
    followers = ChangeFollowers(lambda work: work())
    stream = followers.stream(2)
    for number in range(5):
        followers.notify(change(number))
    assert stream.next(timeout_s=0) == change(3)
    assert stream.next(timeout_s=0) == change(4)
    assert stream.next(timeout_s=0) is None
    assert stream.dropped == 3


def test_a_closed_or_forgotten_stream_keeps_nothing_more() -> None:
    followers = ChangeFollowers(lambda work: work())
    closed, forgotten = followers.stream(2), followers.stream(2)
    followers.notify(change(1))
    closed.close()
    del forgotten
    followers.notify(change(2))
    assert list(closed) == [change(1)]
    assert not followers.has_any


def test_a_coroutine_follows_changes_until_the_end() -> None:
    followers = ChangeFollowers(lambda work: work())

    async def follow() -> list[Change]:
        stream = followers.stream(8)
        asyncio.get_running_loop().call_soon(followers.notify, change(1))
        asyncio.get_running_loop().call_soon(followers.notify, change(2))
        asyncio.get_running_loop().call_soon(followers.end)
        return [found async for found in stream]

    assert asyncio.run(follow()) == [change(1), change(2)]


def test_a_path_that_moves_to_the_channel_beside_its_own_names_it() -> None:
    before = contract(DIRECT, down=())
    (path,) = before.paths
    north = msgspec.structs.replace(path, channel_ids=(2_000,), channel_names=("north",))
    after = msgspec.structs.replace(before, paths=(north,))
    changes = compare(contract_of(before), contract_of(before), contract_of(after))
    assert [change.reason for change in changes] == ["path 1: c1/e0 > #north > c1/e1"]
