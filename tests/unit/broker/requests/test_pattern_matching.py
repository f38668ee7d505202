"""A wide pattern catches turn by turn, and misses nothing: not in a restart, nor on a full disk."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gridstat.broker.requests.command_dispatcher import SERVE_TIMER
from gridstat.broker.requests.pattern_matching import (
    MATCH_TIMER,
    PAUSE_NS_MAX,
    PAUSES_BESIDE_REQUESTS,
)
from gridstat.broker.settings import NS_PER_MS, BrokerSettings
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import GrantedOutcome, Matched, Unsubscribe
from gridstat.net.command.machine import TimerFired
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.segments.counted import Counted
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, publish, subscribe, variable

COUNT = 50
AT_ONCE = 4


@pytest.fixture
def cloud() -> Conversation:
    return pair(settings=BrokerSettings(CLOUD, catch_at_once=AT_ONCE))


def publish_all(cloud: Conversation) -> None:
    cloud.ask(PMU, "c1/e0", publish(*(variable(f"{PMU}/v{at}") for at in range(COUNT))))


def caught(cloud: Conversation) -> int:
    return len(cloud.broker.registry.subscriptions)


def turns(cloud: Conversation) -> list[int]:
    """Return the number of caught variables after each batch, until none wait."""
    found = [caught(cloud)]
    while names := sorted({MATCH_TIMER, SERVE_TIMER} & cloud.timers.keys()):
        del cloud.timers[names[0]]
        cloud.tell(TimerFired(names[0]))
        found.append(caught(cloud))
    return found


def test_a_pattern_over_many_variables_catches_a_few_in_each_turn(cloud: Conversation) -> None:
    publish_all(cloud)
    cloud.send(CENTRE, "c1/e2", subscribe("c1/**"))
    counts = turns(cloud)
    assert counts[-1] == COUNT
    assert all(0 <= after - before <= AT_ONCE for before, after in pairwise([0, *counts]))
    cloud.settle()
    matched = {
        notice.granted.variable.name
        for notice in cloud.notices[CENTRE]
        if isinstance(notice, Matched) and notice.granted.variable is not None
    }
    assert matched == {f"{PMU}/v{at}" for at in range(COUNT)}


def test_many_patterns_in_one_request_are_not_searched_in_one_turn(cloud: Conversation) -> None:
    publish_all(cloud)
    names = cloud.broker.registry.names = Counted(cloud.broker.registry.names)
    patterns = ["c1/**", f"{PMU}/*"] * 10
    cloud.send(CENTRE, "c1/e2", subscribe(*patterns))
    assert names.looks <= 2 * AT_ONCE
    assert turns(cloud)[-1] == COUNT * len(patterns)


def test_many_new_variables_are_caught_a_few_in_each_turn(cloud: Conversation) -> None:
    (granted,) = cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    assert isinstance(granted, GrantedOutcome)
    asked = publish(*(variable(f"{PMU}/v{at}") for at in range(COUNT)))
    cloud.is_serving = False
    cloud.send(PMU, "c1/e0", asked)
    counts = turns(cloud)
    assert counts[-1] == COUNT
    assert all(0 <= after - before <= AT_ONCE for before, after in pairwise([0, *counts]))


def test_what_waits_when_the_broker_dies_is_caught_by_the_next(cloud: Conversation) -> None:
    publish_all(cloud)
    cloud.send(CENTRE, "c1/e2", subscribe("c1/**"))
    assert caught(cloud) < COUNT
    cloud.kill_broker()
    cloud.start()
    cloud.advance(NS_PER_S)
    assert caught(cloud) == COUNT


def test_a_pattern_that_ends_catches_no_more(cloud: Conversation) -> None:
    publish_all(cloud)
    number = cloud.send(CENTRE, "c1/e2", subscribe("c1/**"))
    assert number
    (pattern_id,) = cloud.broker.registry.patterns
    cloud.send(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(pattern_id,)))
    assert turns(cloud)[-1] == 0


def test_what_could_not_be_written_is_caught_when_there_is_room(cloud: Conversation) -> None:
    publish_all(cloud)
    cloud.send(CENTRE, "c1/e2", subscribe("c1/**"))
    before = caught(cloud)
    cloud.is_disk_full = True
    cloud.advance(NS_PER_S // 2)
    assert caught(cloud) == before
    cloud.is_disk_full = False
    cloud.advance(5 * NS_PER_S)
    assert caught(cloud) == COUNT


def test_matching_pauses_for_as_long_as_a_slice_took_to_be_written(cloud: Conversation) -> None:
    """Matching without a pause kept the journal and the routers from the requests of others."""
    publish_all(cloud)
    cloud.is_journal_held = True
    cloud.send(CENTRE, "c1/e2", subscribe("c1/**"))
    cloud.is_journal_held = False
    cloud.write()
    cloud.is_journal_held = True
    cloud.fire(MATCH_TIMER)
    cloud.now_ns += 7 * NS_PER_MS
    cloud.write()
    assert cloud.timers[MATCH_TIMER] == cloud.now_ns + 7 * NS_PER_MS
    cloud.fire(MATCH_TIMER)
    cloud.now_ns += 10 * NS_PER_S
    cloud.write()
    assert cloud.timers[MATCH_TIMER] == cloud.now_ns + PAUSE_NS_MAX, "a disk that stalls"


def test_matching_pauses_longer_while_somebody_waits_for_an_answer(cloud: Conversation) -> None:
    """A lone request beside ten thousand matched variables took four times as long as alone."""
    publish_all(cloud)
    cloud.is_journal_held = True
    cloud.send(CENTRE, "c1/e2", subscribe("c1/**"))
    cloud.is_journal_held = False
    cloud.write()
    cloud.routers["c1/e2"].is_silent = True
    cloud.send(CENTRE, "c1/e2", subscribe(f"{PMU}/v0"))  # The answer waits for the router.
    cloud.is_journal_held = True
    cloud.fire(MATCH_TIMER)
    cloud.now_ns += 7 * NS_PER_MS
    cloud.write()
    pause_ns = PAUSES_BESIDE_REQUESTS * 7 * NS_PER_MS
    assert cloud.timers[MATCH_TIMER] == cloud.now_ns + pause_ns
