"""Fair service: end-points in turn, tokens for commands a second, and bounds in words."""

from __future__ import annotations

from random import Random

import pytest

from gridstat.broker.requests import fair_queue
from gridstat.broker.requests.command_dispatcher import SERVE_TIMER
from gridstat.broker.requests.fair_queue import (
    ALL_BYTES_MAX,
    EDGE_NAMES,
    EDGE_TURNS_MAX,
    HOLD_NS,
    HOLD_PAUSE_NS,
    IN_A_TURN,
    UNATTACHED_BYTES_MAX,
    UNATTACHED_PER_S,
    UNATTACHED_WAITING_MAX,
    UNIT_BYTES,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    FairQueue,
    edge_account,
)
from gridstat.broker.requests.request import Request, Rest
from gridstat.broker.requests.search_times import (
    SEARCH_BURST_NS,
    SEARCH_FREE_NS,
    SEARCH_PARTS,
)
from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.model.errors import MalformedFrame, NotAttached, QuotaReached
from gridstat.model.quota import BURST_S, Quota
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    Attach,
    AttachedOutcome,
    Detach,
    GrantedOutcome,
    RefusedOutcome,
    Unsubscribe,
)
from gridstat.net.command.router_messages import Forward
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, VOLTAGE, subscribe

EDGE = "c1/e2"


def quota_of(per_s: int) -> Quota:
    return Quota(commands_per_s=per_s)


def queue(per_s: int = 0) -> FairQueue:
    return FairQueue(lambda _: quota_of(per_s))


def do_nothing() -> None:
    """Decide nothing."""


def request(who: str, number: int = 1, size_bytes: int = 0) -> Forward:
    return Forward(endpoint=who, request_id=number, body=b"b" * size_bytes, signature=b"")


def begun(found: FairQueue, count: int, now_ns: int = 0) -> list[str]:
    """Take requests, which are under way from then on."""
    taken = [found.take(now_ns) for _ in range(count)]
    return [each[1].endpoint for each in taken if isinstance(each, tuple)]


def served(found: FairQueue, count: int, now_ns: int = 0) -> list[str]:
    """Take requests, each of which is answered at once."""
    who: list[str] = []
    for _ in range(count):
        taken = begun(found, 1, now_ns)
        for each in taken:
            found.ended(each, now_ns)
        who += taken
    return who


def test_end_points_are_served_in_turn_however_many_requests_one_has() -> None:
    found = queue()
    for number in range(500):
        assert found.put(EDGE, request("storm", number), 0) is None
    for who in ("a", "b"):
        assert found.put(EDGE, request(who), 0) is None

    assert {"a", "b"} <= set(served(found, 10))
    assert found.count == 492


def storm_beside(*others: str) -> FairQueue:
    """A queue in which one end-point has many requests waiting, and others one each."""
    found = queue()
    for number in range(100):
        found.put(EDGE, request("storm", number), 0)
    for who in others:
        found.put(EDGE, request(who), 0)
    return found


def test_a_storm_has_one_request_under_way_while_another_is_being_granted() -> None:
    found = storm_beside("protection")
    assert begun(found, 3) == ["storm", "storm", "protection"]
    assert found.take(0) is None
    assert found.next_ns(0) == HOLD_NS
    found.ended("storm", 1)
    assert begun(found, 2, now_ns=1) == ["storm"]
    found.ended("protection", 2)
    assert found.next_ns(2) == 2
    assert begun(found, 5, now_ns=2) == ["storm"] * 5


def test_a_request_under_way_holds_nobody_back_for_long() -> None:
    found = storm_beside("protection")
    begun(found, 3)
    assert begun(found, 5, now_ns=HOLD_NS - 1) == []
    assert begun(found, 5, now_ns=HOLD_NS) == ["storm"] * 5


def test_requests_that_follow_one_another_hold_nobody_back_for_long() -> None:
    found = storm_beside()
    begun(found, 1)
    step_ns = HOLD_NS // 10
    for number in range(20):  # Each while the one before it is under way.
        found.put(EDGE, request("next", number), number * step_ns)
        assert begun(found, 3, number * step_ns).count("next") == 1
    assert len(begun(found, 20, 2 * HOLD_NS)) == 20


def test_who_has_held_others_back_for_all_its_time_does_not_at_once_again() -> None:
    found = storm_beside("slow")
    assert begun(found, 5) == ["storm", "storm", "slow"]
    assert len(begun(found, 5, HOLD_NS)) == 5
    for now_ns, is_held in ((HOLD_NS + 1, False), (HOLD_NS + HOLD_PAUSE_NS, True)):
        found.ended("slow", now_ns)
        found.put(EDGE, request("slow"), now_ns)
        taken = begun(found, 8, now_ns)
        assert "slow" in taken
        assert (len(taken) < 8) == is_held
        found.ended("storm", now_ns)


def test_requests_that_end_soon_hold_others_back_again_and_again() -> None:
    found = storm_beside()
    for number in range(40):
        now_ns = number * HOLD_NS // 10
        found.put(EDGE, request("quick", number), now_ns)
        assert len(begun(found, 8, now_ns)) < 8
        for who in ("quick", "storm"):
            found.ended(who, now_ns + HOLD_NS // 20)


def test_end_points_with_many_requests_each_do_not_hold_each_other_back() -> None:
    found = storm_beside()
    for number in range(100):
        found.put(EDGE, request("other", number), 0)
    taken = begun(found, 100)
    assert taken.count("storm") == taken.count("other") == 50


def test_the_slices_of_a_request_are_not_held_back() -> None:
    found = storm_beside("protection")
    begun(found, 3)
    slice_ = Rest(
        Request("storm", 1, b"", needs_endpoint=True, is_query=False, facts=None), do_nothing
    )
    assert found.take(0) is None
    found.put_rest(slice_, 0)
    assert found.take(0) is slice_
    assert found.take(0) is None


def test_an_end_point_that_leaves_is_held_no_longer() -> None:
    found = storm_beside("protection")
    begun(found, 3)
    assert found.take(0) is None
    found.forget_edge(EDGE)
    assert found.count == 0
    assert found.take(HOLD_NS) is None
    assert found.next_ns(HOLD_NS) is None


def test_the_requests_of_one_end_point_keep_their_order() -> None:
    found = queue()
    for number in range(20):
        found.put(EDGE, request("a", number), 0)
        found.put(EDGE, request("b", number), 0)
    numbers = []
    while isinstance(taken := found.take(0), tuple):
        found.ended(taken[1].endpoint, 0)
        if taken[1].endpoint == "a":
            numbers.append(taken[1].request_id)
    assert numbers == list(range(20))
    assert found.take(0) is None
    assert found.next_ns(0) is None


def test_a_full_queue_refuses_the_longest_lines_and_not_the_others() -> None:
    found = queue()
    size_bytes = WAITING_BYTES_MAX // 8
    storms = [f"storm{number}" for number in range(50)]
    answers = [
        found.put(EDGE, request(who, number, size_bytes), 0)
        for number in range(7)
        for who in storms
    ]
    dropped = found.take_dropped()
    assert any(answers) or dropped
    assert found.put(EDGE, request("honest", 1, size_bytes), 0) is None

    for edge, forward, refusal in (*dropped, *found.take_dropped()):
        assert edge == EDGE
        assert forward.endpoint in storms
        assert f"{forward.endpoint} has the most of them" in refusal.args[0]
        assert f"{ALL_BYTES_MAX} bytes" in refusal.args[0]
    taken = served(found, found.count)
    assert "honest" in taken
    assert set(taken) == {"honest", *storms}, "nobody's line is dropped whole"
    assert found.count == 0
    assert found.next_ns(0) is None


def test_long_requests_count_as_several() -> None:
    found = queue()
    for number in range(100):
        found.put(EDGE, request("long", number, 8 * UNIT_BYTES), 0)
        found.put(EDGE, request("short", number), 0)
    first = served(found, 60)
    assert first.count("short") > 4 * first.count("long")


def test_commands_a_second_are_a_burst_and_then_a_rate() -> None:
    found = queue(per_s=100)
    for number in range(300):
        found.put(EDGE, request("a", number), 0)

    assert len(served(found, 300)) == BURST_S * 100
    assert found.next_ns(0) == NS_PER_S // 100
    assert len(served(found, 300, now_ns=NS_PER_S // 2)) == 50
    assert found.delayed > 0


def test_an_end_point_without_tokens_delays_nobody_else() -> None:
    found = queue(per_s=10)
    for number in range(25):
        found.put(EDGE, request("a", number), 0)
    served(found, 25)
    found.put(EDGE, request("b"), 0)
    assert served(found, 5) == ["b"]


def test_a_request_that_would_wait_too_long_is_refused_in_words() -> None:
    found = queue(per_s=10)
    refusals = [found.put(EDGE, request("a", number), 0) for number in range(90)]
    refused = [each for each in refusals if each is not None]
    assert len(refused) == 20, "a burst of 20 and 5 s of waiting fit"
    assert "10 commands a second" in refused[0].args[0]
    assert "access rule" in refused[0].hint


@pytest.mark.parametrize(("count", "size_bytes"), [(WAITING_MAX, 0), (8, WAITING_BYTES_MAX // 8)])
def test_waiting_requests_are_bounded(count: int, size_bytes: int) -> None:
    found = queue()
    refusals = [found.put(EDGE, request("a", number, size_bytes), 0) for number in range(count + 1)]
    assert isinstance(refusals[-1], QuotaReached)
    assert found.put(EDGE, request("b"), 0) is None, "others are not refused"


def test_the_requests_of_a_lost_edge_are_dropped() -> None:
    found = queue()
    for number in range(5):
        found.put("c1/e0", request("a", number), 0)
    found.put(EDGE, request("a", 9), 0)
    found.put("c1/e0", request("b"), 0)
    found.forget_edge("c1/e0")
    assert found.count == 1
    assert served(found, 5) == ["a"]
    assert found.next_ns(0) is None


def storm(cloud: Conversation, count: int) -> None:
    cloud.is_serving = False
    for _ in range(count):
        cloud.send(PMU, "c1/e0", subscribe(VOLTAGE))


def test_a_storm_of_one_end_point_does_not_delay_the_request_of_another() -> None:
    cloud = pair()
    cloud.publish(VOLTAGE, "c1/e0")
    storm(cloud, 400)
    number = cloud.send(CENTRE, EDGE, subscribe(VOLTAGE))
    for _ in range(2):  # One turn for each of the two.
        cloud.fire(SERVE_TIMER)

    assert len(cloud.broker.registry.endpoints[CENTRE].subscriptions) == 1
    assert cloud.broker.survey()["requests"]["waiting"] > 300, "the storm is still waiting"
    cloud.settle()
    (granted,) = cloud.answers[CENTRE, number]
    assert isinstance(granted, GrantedOutcome)


def test_a_turn_serves_few_requests_and_the_rest_is_served_by_the_timer() -> None:
    cloud = pair()
    storm(cloud, 100)
    before = sum(who == PMU for who, _ in cloud.answers)
    cloud.fire(SERVE_TIMER)
    assert sum(who == PMU for who, _ in cloud.answers) - before <= IN_A_TURN
    cloud.advance(NS_PER_S)
    assert SERVE_TIMER not in cloud.timers
    assert sum(who == PMU for who, _ in cloud.answers) >= 100


def test_too_many_commands_a_second_are_refused_and_noted_once_a_second() -> None:
    settings = BrokerSettings(CLOUD, quotas=Quotas(commands_per_s=10))
    cloud = pair(settings=settings)
    cloud.publish(VOLTAGE, "c1/e0")
    storm(cloud, 200)
    notes = [note for note in cloud.notes if note.word == "requests_refused"]
    assert len(notes) == 1
    assert notes[0].is_warning
    assert cloud.broker.survey()["requests"]["refused"] > 100


def test_requests_that_gave_way_to_others_are_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cloud = pair()
    monkeypatch.setattr(fair_queue, "ALL_BYTES_MAX", 10_000)
    storm(cloud, 60)
    before = cloud.broker.survey()["requests"]
    cloud.send(CENTRE, EDGE, subscribe(VOLTAGE))

    after = cloud.broker.survey()["requests"]
    assert after["waiting"] < before["waiting"]
    assert after["refused"] > before["refused"]
    refused = [
        outcome
        for (who, _), outcomes in cloud.answers.items()
        for outcome in outcomes
        if who == PMU and isinstance(outcome, RefusedOutcome) and "most of them" in outcome.reason
    ]
    assert len(refused) == after["refused"]
    assert all(f"{PMU} has the most of them" in each.reason for each in refused)


def test_an_end_point_that_has_used_its_search_time_waits_and_delays_nobody_else() -> None:
    found = queue()
    found.searched("searcher", SEARCH_BURST_NS + SEARCH_FREE_NS, 0)
    assert found.is_free("searcher", 0)
    found.searched("searcher", 50_000_000 + SEARCH_FREE_NS, 0)
    assert not found.is_free("searcher", 0)
    assert found.is_free("other", 0)
    assert found.put(EDGE, request("searcher"), 0) is None
    assert found.put(EDGE, request("other"), 0) is None
    assert served(found, 2) == ["other"]
    due_ns = SEARCH_PARTS * 50_000_000
    assert found.next_ns(0) == due_ns
    assert served(found, 1, due_ns) == ["searcher"]


def test_searches_that_take_as_long_as_most_are_not_charged() -> None:
    found = queue()
    for _ in range(100_000):
        found.searched("many", SEARCH_FREE_NS, 0)
    assert found.is_free("many", 0)
    assert found.search_times.total_ns == 100_000 * SEARCH_FREE_NS


def test_what_is_decided_again_has_no_free_search_time() -> None:
    found = queue()
    for _ in range(SEARCH_BURST_NS // SEARCH_FREE_NS):
        found.searched("waiting", SEARCH_FREE_NS, 0, is_again=True)
    assert found.search_times.ready_ns("waiting", 0) == 0
    found.searched("waiting", SEARCH_FREE_NS, 0, is_again=True)
    assert found.search_times.ready_ns("waiting", 0) == SEARCH_PARTS * SEARCH_FREE_NS


def test_a_request_that_would_wait_too_long_for_search_time_is_refused_in_words() -> None:
    found = queue()
    found.searched("searcher", SEARCH_BURST_NS + NS_PER_S, 0)
    refusal = found.put(EDGE, request("searcher"), 0)
    assert refusal is not None
    assert "used up its search time" in str(refusal.args[0])
    assert "fewer paths" in refusal.hint
    assert found.put(EDGE, request("other"), 0) is None


def test_the_slices_of_a_request_wait_for_search_time_too() -> None:
    found = queue()
    found.searched("searcher", SEARCH_BURST_NS + 2 * SEARCH_FREE_NS, 0)
    opened = Request("searcher", 1, b"", needs_endpoint=True, is_query=False, facts=None)
    found.put_rest(Rest(opened, do_nothing), 0)
    assert found.take(0) is None
    assert found.take(SEARCH_PARTS * SEARCH_FREE_NS) is not None


def test_the_broker_charges_path_searches_to_the_end_point_that_asked() -> None:
    cloud = pair()
    cloud.publish(VOLTAGE, "c1/e0")
    assert cloud.broker.survey()["requests"]["search_ms"] == 0
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert cloud.broker.survey()["requests"]["search_ms"] > 0


# Requests of end-points that are not attached to the edge router that forwards them.


def put_unattached(
    found: FairQueue, name: str, number: int = 1, *, size_bytes: int = 0, edge: str = EDGE
) -> QuotaReached | None:
    forward = request(name, number, size_bytes)
    return found.put(edge, forward, 0, account=edge_account(edge, name))


def test_a_flood_of_one_name_delays_no_other_name_of_the_same_edge() -> None:
    found = queue()
    refusals = [put_unattached(found, "stranger", number) for number in range(1_000)]
    assert sum(each is None for each in refusals) == UNATTACHED_WAITING_MAX
    assert put_unattached(found, "honest") is None
    assert "honest" in begun(found, 3)


def test_all_end_points_of_an_edge_may_wait_beside_a_flood_of_some() -> None:
    found = queue()
    for number in range(EDGE_NAMES // 2):
        for _ in range(2 * UNATTACHED_WAITING_MAX):
            put_unattached(found, f"stranger{number}", size_bytes=UNATTACHED_BYTES_MAX // 10)
    honest = [f"honest{number}" for number in range(EDGE_NAMES // 2)]
    assert [put_unattached(found, name) for name in honest] == [None] * len(honest)
    taken = begun(found, found.count)
    assert set(honest) <= set(taken)


def test_an_edge_has_a_bound_for_all_its_unattached_end_points_and_others_are_not_refused() -> None:
    found = queue()
    most = EDGE_NAMES * UNATTACHED_WAITING_MAX
    refusals = [put_unattached(found, f"forged{number}") for number in range(most + 1)]
    assert refusals[:-1] == [None] * most
    assert refusals[-1] is not None
    assert refusals[-1].args[0].startswith(f"edge router {EDGE} has forwarded {most} requests")
    assert put_unattached(found, "honest", edge="c1/e0") is None
    assert found.put(EDGE, request("attached"), 0) is None


def test_an_edge_has_a_bound_of_bytes_for_all_its_unattached_end_points() -> None:
    found = queue()
    refusals = [
        put_unattached(found, f"forged{number}", size_bytes=UNATTACHED_BYTES_MAX - 100)
        for number in range(EDGE_NAMES + 20)
    ]
    assert refusals[: EDGE_NAMES - 1] == [None] * (EDGE_NAMES - 1)
    assert refusals[-1] is not None
    assert "not attached" in refusals[-1].args[0]


@pytest.mark.parametrize(
    ("count", "size_bytes"), [(UNATTACHED_WAITING_MAX, 0), (2, UNATTACHED_BYTES_MAX // 2 - 100)]
)
def test_one_name_has_a_bound_at_an_edge_and_is_told_so(count: int, size_bytes: int) -> None:
    found = queue()
    *kept, refusal = [
        put_unattached(found, "a", number, size_bytes=size_bytes) for number in range(count + 1)
    ]
    assert kept == [None] * count
    assert refusal is not None
    assert refusal.args[0].startswith(f"edge router {EDGE}: a, which is not attached to it, has")
    assert "attach again" in refusal.hint


def test_the_turns_of_an_edge_grow_with_its_names_up_to_a_bound() -> None:
    for names, turns in ((1, 1), (4, 4), (100, EDGE_TURNS_MAX)):
        found = queue()
        for number in range(names):
            for _ in range(4):
                put_unattached(found, f"n{number}")
        for number in range(100):
            found.put("c1/e0", request("attached", number), 0)
        first = begun(found, 4 * (turns + 1))
        assert 4 <= first.count("attached") <= 8, names


def test_the_names_of_an_edge_are_served_in_turn() -> None:
    found = queue()
    names = [f"n{number}" for number in range(3 * EDGE_TURNS_MAX)]
    for number in range(4):
        for name in names:
            put_unattached(found, name, number)
    taken = begun(found, 4 * len(names))
    for at in range(0, 4 * len(names), 2 * len(names)):
        assert sorted(taken[at : at + 2 * len(names)]) == sorted(2 * names)


def test_a_name_without_tokens_delays_no_other_name() -> None:
    found = queue()
    for _ in range(BURST_S * UNATTACHED_PER_S):
        put_unattached(found, "a")
        assert begun(found, 1) == ["a"]
    put_unattached(found, "a")
    put_unattached(found, "b")
    assert begun(found, 2) == ["b"]
    assert found.next_ns(0) == NS_PER_S // UNATTACHED_PER_S
    assert begun(found, 2, NS_PER_S // UNATTACHED_PER_S) == ["a"]


def test_requests_of_unattached_names_take_no_token_of_the_end_point() -> None:
    found = queue(per_s=1)
    for _ in range(UNATTACHED_WAITING_MAX):
        put_unattached(found, "a")
    begun(found, UNATTACHED_WAITING_MAX)
    assert found.is_free("a", NS_PER_S)
    assert found.put(EDGE, request("a"), 0) is None
    assert begun(found, 1) == ["a"]


def test_when_the_queue_is_full_the_names_of_an_edge_give_way_as_one() -> None:
    found = queue()
    long_bytes = UNATTACHED_BYTES_MAX - 100
    for edge in ("c1/e0", "c1/e1"):
        for number in range(EDGE_NAMES - 1):
            assert (
                put_unattached(found, f"{edge}{number}", size_bytes=long_bytes, edge=edge) is None
            )
    size_bytes = WAITING_BYTES_MAX // 2 - 100
    for number in range(8):
        assert found.put(EDGE, request(f"honest{number // 2}", number, size_bytes), 0) is None
    before = found.count
    assert not found.take_dropped()
    assert found.put(EDGE, request("honest4", 1, size_bytes), 0) is None
    dropped = found.take_dropped()
    assert len(dropped) >= EDGE_NAMES // 3
    assert found.count == before + 1 - len(dropped)
    (edge,) = {edge for edge, _, _ in dropped}
    assert edge in ("c1/e0", "c1/e1")
    assert all(f"edge router {edge} has the most of them" in each.args[0] for *_, each in dropped)
    refusal = put_unattached(found, "one more", size_bytes=long_bytes, edge=edge)
    assert refusal is None, "there is room again"


@pytest.mark.parametrize("seed", range(20))
def test_every_request_that_waits_is_served_or_dropped_once(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(fair_queue, "ALL_BYTES_MAX", 60_000)
    monkeypatch.setattr(fair_queue, "EDGE_TURNS_MAX", 3)
    random, found, now_ns = Random(seed), queue(per_s=20), 0
    waiting: dict[int, str] = {}
    for number in range(3_000):
        edge, name = f"c1/e{random.randrange(3)}", f"n{random.randrange(12)}"
        account = edge_account(edge, name) if random.random() < 0.7 else name
        forward = request(name, number, random.choice((0, 300, 3_000)))
        if found.put(edge, forward, now_ns, account=account) is None:
            waiting[number] = edge
        for _, gone, _ in found.take_dropped():
            del waiting[gone.request_id]
        for _ in range(random.randrange(3)):
            taken = found.take(now_ns)
            if isinstance(taken, tuple):
                del waiting[taken[1].request_id]
                found.ended(taken[1].endpoint, now_ns)
        if random.random() < 0.01:
            found.forget_edge(edge)
            waiting = {each: by for each, by in waiting.items() if by != edge}
        assert found.count == len(waiting)
        now_ns += random.choice((0, NS_PER_S // 100))
    while (next_ns := found.next_ns(now_ns)) is not None:
        now_ns = next_ns
        taken = found.take(now_ns)
        if isinstance(taken, tuple):
            del waiting[taken[1].request_id]
            found.ended(taken[1].endpoint, now_ns)
    assert not waiting
    assert found.count == 0


def attach(name: str, edge: str) -> Attach:
    return Attach(
        edge=edge,
        certificate=f"endpoint/{name}".encode(),
        incarnation="a",
        first_time=True,
        datagram_versions=(1, 2, 3),
        security="hop",
    )


def test_forged_requests_take_no_token_and_no_turn_of_the_end_point_that_they_name() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD, quotas=Quotas(commands_per_s=10)))
    cloud.is_serving = False
    for _ in range(100):
        cloud.send(PMU, "c1/e2", attach(PMU, "c1/e2"), key="c1/forger")
    number = cloud.send(PMU, "c1/e0", Unsubscribe())
    cloud.fire(SERVE_TIMER)
    cloud.fire(SERVE_TIMER)
    (outcome,) = cloud.answers[PMU, number]
    assert not isinstance(outcome, RefusedOutcome)


def test_a_stranger_that_floods_an_edge_keeps_no_other_from_attaching() -> None:
    cloud = pair()
    cloud.is_serving = False
    for _ in range(2_000):
        cloud.send("c1/stranger", EDGE, attach("c1/other", EDGE))
    number = cloud.send("c1/new", EDGE, attach("c1/new", EDGE))
    for _ in range(2):
        cloud.fire(SERVE_TIMER)
    cloud.is_serving = True
    cloud.settle()
    (outcome,) = cloud.answers["c1/new", number]
    assert isinstance(outcome, AttachedOutcome)


def test_requests_of_unattached_end_points_are_refused_at_once_but_attach_and_detach() -> None:
    cloud = pair()
    cloud.is_serving = False
    for _ in range(100):
        cloud.send(PMU, "c1/e0", subscribe(VOLTAGE))
    waiting = cloud.broker.survey()["requests"]["waiting"]
    number = cloud.send("c1/new", EDGE, subscribe(VOLTAGE))
    (outcome,) = cloud.answers["c1/new", number]
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == NotAttached.code
    assert cloud.broker.survey()["requests"]["waiting"] == waiting
    for command in (attach("c1/new", EDGE), Detach()):
        cloud.send("c1/new", EDGE, command)
    assert cloud.broker.survey()["requests"]["waiting"] == waiting + 2


@pytest.mark.parametrize(
    ("name", "size_bytes"), [("c1/new", UNATTACHED_BYTES_MAX), ("c1/" + "n" * 1_000, 10)]
)
def test_long_requests_of_unattached_end_points_are_refused_at_once(
    name: str, size_bytes: int
) -> None:
    cloud = pair()
    cloud.is_serving = False
    cloud.hear(EDGE, request(name, 7, size_bytes))
    (outcome,) = cloud.answers[name, 7]
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == MalformedFrame.code
    assert "too long" in outcome.reason
    assert f"{UNATTACHED_BYTES_MAX:,} bytes" in outcome.hint


def test_the_note_of_refused_requests_names_who_sends_too_many() -> None:
    cloud = pair()
    cloud.is_serving = False
    for _ in range(100):
        cloud.send(PMU, EDGE, attach(PMU, EDGE), key="c1/forger")
    (note,) = [note for note in cloud.notes if note.word == "requests_refused"]
    facts = {name: str(fact) for name, fact in note.facts}
    assert facts["reason"].startswith(f"edge router {EDGE}: {PMU}, which is not attached to it")
    assert "attach again" in facts["hint"]
