"""Finding variables: by pattern, at most so many, and never more than an answer can hold."""

from __future__ import annotations

import pytest

from gridstat.broker.records.name_tree import IN_VAIN_AT_ONCE
from gridstat.broker.requests.command_dispatcher import LOOK_NS, SERVE_TIMER
from gridstat.broker.requests.outcomes import ANSWER_BYTES_MAX, encode_outcomes
from gridstat.broker.requests.queries import FIND_AT_ONCE
from gridstat.model.errors import LayoutError, QuotaReached
from gridstat.model.status import Field, FieldKind, RecordType, StatusVariable
from gridstat.net.command.endpoint_messages import (
    FindVariables,
    FoundOutcome,
    RefusedOutcome,
    Unpublish,
)
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, publish, subscribe, variable


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.ask(PMU, "c1/e0", publish(*(variable(f"{PMU}/v{number}") for number in range(20))))
    return found


def find(cloud: Conversation, pattern: str, limit: int = 1_000) -> FoundOutcome:
    command = FindVariables(pattern=pattern, limit=limit)
    return cloud.only(FoundOutcome, cloud.ask(CENTRE, "c1/e2", command))


def test_a_pattern_finds_its_variables_in_the_order_of_names(cloud: Conversation) -> None:
    found = find(cloud, "c1/*/pmu/*")
    assert [one.name for one in found.variables] == sorted(f"{PMU}/v{n}" for n in range(20))
    assert found.is_complete
    assert find(cloud, f"{PMU}/v3").variables[0].name == f"{PMU}/v3"
    assert find(cloud, "c1/south/**") == FoundOutcome(variables=())


def test_a_limit_is_kept_and_told(cloud: Conversation) -> None:
    found = find(cloud, "c1/**", limit=5)
    assert (len(found.variables), found.is_complete) == (5, False)
    assert find(cloud, "c1/**", limit=20).is_complete


def test_pages_behind_the_last_name_of_one_another_hold_everything_once(
    cloud: Conversation,
) -> None:
    whole = find(cloud, "c1/**").variables
    found: list[StatusVariable] = []
    after = ""
    while True:
        command = FindVariables(pattern="c1/**", limit=7, after=after)
        page = cloud.only(FoundOutcome, cloud.ask(CENTRE, "c1/e2", command))
        found += page.variables
        if page.is_complete:
            break
        after = page.variables[-1].name
        if len(found) == 7:  # The last name of a page may be gone meanwhile.
            cloud.ask(PMU, "c1/e0", Unpublish(names=(after,)))
    assert tuple(found) == whole


def test_a_pattern_that_is_none_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/v*")))
    assert refused.code == LayoutError.code


def test_large_types_do_not_burst_an_answer(cloud: Conversation) -> None:
    fields = tuple(Field(f"field_{number}", FieldKind.UINT8) for number in range(2_000))
    large = RecordType("large", fields)
    names = [f"{PMU}/large{number}" for number in range(30)]
    for name in names:
        cloud.ask(PMU, "c1/e0", publish(variable(name, value_type=large)))

    found = find(cloud, f"{PMU}/*")
    assert not found.is_complete
    assert len(encode_outcomes((found,))) < 2 * ANSWER_BYTES_MAX
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(*names))
    refused = [one for one in outcomes if isinstance(one, RefusedOutcome)]
    assert {one.code for one in refused} == {QuotaReached.code}
    assert len(encode_outcomes(outcomes)) < 2 * ANSWER_BYTES_MAX


def test_a_wide_find_takes_turns_with_the_requests_of_others(cloud: Conversation) -> None:
    """One find within its commands a second held the broker for milliseconds at a time."""
    count = 3 * FIND_AT_ONCE
    for first in range(0, count, 32):
        names = (f"{PMU}/wide-{at:03}" for at in range(first, first + 32))
        cloud.ask(PMU, "c1/e0", publish(*(variable(name) for name in names)))
    cloud.is_serving = False
    wide = CENTRE, cloud.send(CENTRE, "c1/e2", FindVariables(pattern="c1/**", limit=1_000))
    short = PMU, cloud.send(PMU, "c1/e0", FindVariables(pattern=f"{PMU}/v3", limit=1_000))
    turns = 0
    while wide not in cloud.answers:
        cloud.fire(SERVE_TIMER)
        turns += 1
        assert short in cloud.answers, "the other end-point is served before the second slice"
    assert turns >= 3
    (found,) = cloud.answers[wide]
    assert isinstance(found, FoundOutcome)
    assert len(found.variables) == count + 20
    assert found.is_complete


def test_a_find_of_what_is_not_there_takes_turns_too_and_is_charged(cloud: Conversation) -> None:
    """One pattern made the broker look at all names in one turn, for nothing."""
    tree = cloud.broker.registry.name_tree
    for at in range(2_000):
        tree.add(f"c1/p{at}/v", 1_000_000 + at)
    cloud.is_serving = False
    absent = CENTRE, cloud.send(CENTRE, "c1/e2", FindVariables(pattern="c1/*/absent"))
    short = PMU, cloud.send(PMU, "c1/e0", FindVariables(pattern=f"{PMU}/v3"))
    turns = 0
    while absent not in cloud.answers:
        before = tree.in_vain
        cloud.fire(SERVE_TIMER)
        assert tree.in_vain - before <= 2 * IN_VAIN_AT_ONCE
        turns += 1
        assert short in cloud.answers or turns < 2, "the other end-point is served in between"
    assert turns >= 4
    assert cloud.answers[absent] == (FoundOutcome(variables=()),)
    assert cloud.broker._commands.queue.search_times.total_ns >= 2_000 * LOOK_NS
