"""Bands between clouds: real brokers of two clouds and a root, and one narrow channel.

root ── c1   publishers at c1/e0; the channel c1/e0 → c1/b is narrow
     └─ c2   a subscriber at c2/e
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from gridstat.broker.requests.banded_contracts import BandedContracts
from gridstat.broker.settings import BandSettings
from gridstat.broker.tree import scope_room
from gridstat.broker.tree.owned_contracts import OwnedContracts
from gridstat.console.cli.explain import explained
from gridstat.model.band_law import BandPolicy
from gridstat.model.errors import ChannelFull
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.net.command.endpoint_messages import (
    ContractChanged,
    GrantedOutcome,
    RefusedOutcome,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from gridstat.net.command.operator_messages import Explain
from tests.unit.broker.clouds import EVENT_BYTES, wide_enough
from tests.unit.broker.stand_ins import publish, subscribe, variable
from tests.unit.broker.tree.family import DEFAULTS, Family

if TYPE_CHECKING:
    from gridstat.broker.capacity.allocation import AllocationRequest
    from gridstat.net.command.endpoint_messages import Outcome
    from gridstat.net.command.segment_messages import LowerContract

PARENTS: Final = {"c1": "root", "c2": "root"}
PMU, DESK, NEAR = "c1/pmu", "c2/desk", "c1/desk"
NARROW: Final = ("c1/e0", "c1/b")
INSIDE: Final = {
    "c1": [NARROW, ("c1/b", "c1/e0"), ("c1/b", "c1/e1"), ("c1/e1", "c1/b")],
    "c2": [("c2/b", "c2/e"), ("c2/e", "c2/b")],
}
BETWEEN: Final = {"root": [("c1/b", "c2/b"), ("c2/b", "c1/b")]}
WIDE = QosRequest(every_worst=60)
URGENT = QosRequest(every=2, priority=1)
HOLD_NS = BandSettings().raise_after_ns


def two_clouds(
    events_per_s: int = 60,
    policy: BandPolicy = BandPolicy.BANDS,
    *,
    narrow: tuple[str, str] = NARROW,
    is_deep: bool = False,
) -> Family:
    """With `is_deep` another broker stands between the root and c1."""
    settings = (
        replace(DEFAULTS[0], bands=BandSettings(policy=policy)),
        replace(DEFAULTS[1], policy=policy),
    )
    parents = {"c1": "west", "west": "root", "c2": "root"} if is_deep else PARENTS
    bandwidths = {narrow: wide_enough(events_per_s * EVENT_BYTES)}
    family = Family(parents, INSIDE, BETWEEN, bandwidths=bandwidths, settings=settings).start()
    one, two = family.leaves["c1"], family.leaves["c2"]
    one.attach(PMU, "c1/e0", data_port=0)
    one.attach(NEAR, "c1/e1")
    two.attach(DESK, "c2/e")
    variables = [variable(name(number), period=Period(1, 60)) for number in range(5)]
    one.send(PMU, "c1/e0", publish(*variables))
    rest(family)
    return family


def name(number: int) -> str:
    return f"{PMU}/v{number}"


def rest(family: Family, *, for_ns: int = 3 * NS_PER_S) -> None:
    family.settle()
    for _ in range(max(1, for_ns // (NS_PER_S // 4))):
        family.pass_time(NS_PER_S // 4)


def ask(family: Family, who: str, number: int, qos: QosRequest = WIDE) -> Outcome:
    leaf, edge = (family.leaves["c1"], "c1/e1") if who == NEAR else (family.leaves["c2"], "c2/e")
    request = leaf.send(who, edge, subscribe(name(number), qos))
    rest(family)
    (outcome,) = leaf.answers[who, request]
    return outcome


def end(family: Family, who: str, outcome: GrantedOutcome) -> None:
    leaf, edge = (family.leaves["c1"], "c1/e1") if who == NEAR else (family.leaves["c2"], "c2/e")
    leaf.send(who, edge, Unsubscribe(subscription_ids=(outcome.subscription_id,)))
    rest(family)


def everys(family: Family) -> dict[str, int]:
    """The divisors that c1 carries, by variable; nothing may be under way."""
    found: dict[str, int] = {}
    for one in family.leaves["c1"].broker.registry.subscriptions.values():
        key = one.record.name.rpartition("/")[2]
        assert key not in found, "a generation is left over"
        found[key] = one.record.granted[0].every
    return found


def told(family: Family, who: str) -> list[int]:
    """The divisors of which notices have told an end-point."""
    leaf = family.leaves[who.partition("/")[0]]
    return [
        notice.granted.granted[0].every
        for notice in leaf.notices.get(who, [])
        if isinstance(notice, ContractChanged)
    ]


def test_a_contract_from_another_cloud_lowers_those_inside() -> None:
    family = two_clouds()
    ask(family, NEAR, 0)
    outcome = ask(family, DESK, 1, URGENT)
    assert isinstance(outcome, GrantedOutcome)
    assert everys(family) == {"v0": 2, "v1": 2}
    assert told(family, NEAR) == [2]
    end(family, DESK, outcome)
    rest(family, for_ns=3 * HOLD_NS)
    assert everys(family) == {"v0": 1}
    assert told(family, NEAR) == [2, 1]


def explained_lines(family: Family, number: int) -> list[str]:
    """The lines of `gridstat explain`, with the replies of both clouds."""
    replies = [
        family.operate(cloud, Explain(request_id=1, name=name(number))).facts
        for cloud in ("c1", "c2")
    ]
    known = [facts for facts in replies if "subscriptions" in facts]  # Others do not know it.
    return list(explained(known[0] | {"elsewhere": known[1:]}))


def test_explain_says_who_lowered_whom_across_clouds() -> None:
    family = two_clouds(events_per_s=90)
    first = ask(family, NEAR, 0)
    second = ask(family, DESK, 1, QosRequest(every=2, every_worst=60))
    urgent = ask(family, DESK, 2, QosRequest(priority=1))
    assert isinstance(first, GrantedOutcome)
    assert isinstance(second, GrantedOutcome)
    assert isinstance(urgent, GrantedOutcome)
    assert everys(family) == {"v0": 4, "v1": 4, "v2": 1}
    cause = f"    lowered for c2#{urgent.subscription_id}"
    assert cause in explained_lines(family, 0)
    assert cause in explained_lines(family, 1)
    near = f"subscription {first.subscription_id} of {NEAR} to {name(0)}"
    far = f"contract c2#{second.subscription_id} of {DESK} to {name(1)}"
    lines = explained_lines(family, 2)
    for lowered in (near, far):
        assert f"    has lowered {lowered} (priority 3) to every 4. slot" in lines


def test_explain_names_one_inside_for_which_another_cloud_was_lowered() -> None:
    family = two_clouds()
    first = ask(family, DESK, 0)
    assert isinstance(first, GrantedOutcome)
    ask(family, NEAR, 1, URGENT)
    assert f"    lowered for c1: {NEAR} to {name(1)}" in explained_lines(family, 0)
    lowered = f"contract c2#{first.subscription_id} of {DESK} to {name(0)}"
    line = f"    has lowered {lowered} (priority 3) to every 2. slot"
    assert line in explained_lines(family, 1)


def test_a_cloud_that_serves_first_come_lowers_nobody() -> None:
    family = two_clouds(policy=BandPolicy.FIRST_COME)
    ask(family, NEAR, 0)
    outcome = ask(family, DESK, 1, URGENT)
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == ChannelFull.code
    assert everys(family) == {"v0": 1}


def test_an_equal_from_another_cloud_lowers_those_inside_to_its_own_rate_at_most() -> None:
    family = two_clouds()
    ask(family, NEAR, 0)
    outcome = ask(family, DESK, 1)
    assert isinstance(outcome, GrantedOutcome)
    assert everys(family) == {"v0": 2, "v1": 4}, "the owner tries every 4. slot next"


def test_a_contract_between_clouds_gives_way_to_another_and_rises_when_that_leaves() -> None:
    family = two_clouds()
    first = ask(family, DESK, 0)
    assert isinstance(first, GrantedOutcome)
    assert first.granted[0].every == 1
    outcome = ask(family, DESK, 1, URGENT)
    assert isinstance(outcome, GrantedOutcome)
    assert everys(family) == {"v0": 2, "v1": 2}
    assert told(family, DESK) == [2]
    end(family, DESK, outcome)
    assert everys(family) == {"v0": 2}, "nobody is raised before the hold-down"
    rest(family, for_ns=6 * HOLD_NS)
    assert everys(family) == {"v0": 1}
    assert told(family, DESK) == [2, 1]


def test_a_contract_between_clouds_gives_way_to_one_inside() -> None:
    family = two_clouds()
    ask(family, DESK, 0)
    outcome = ask(family, NEAR, 1, URGENT)
    assert isinstance(outcome, GrantedOutcome)
    assert everys(family) == {"v0": 2, "v1": 2}
    assert told(family, DESK) == [2]


def test_a_request_that_waits_for_an_owner_is_not_decided_again_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = two_clouds()
    ask(family, DESK, 0)
    decided: list[int] = []
    wants_room = BandedContracts.wants_room

    def counted(bands: BandedContracts, request: AllocationRequest) -> bool:
        decided.append(request.subscription_id)
        return wants_room(bands, request)

    def never(contracts: OwnedContracts, message: LowerContract) -> None:
        del contracts, message

    monkeypatch.setattr(BandedContracts, "wants_room", counted)
    monkeypatch.setattr(OwnedContracts, "lower", never)
    leaf = family.leaves["c1"]
    request = leaf.send(NEAR, "c1/e1", subscribe(name(1), URGENT))
    rest(family)
    (outcome,) = leaf.answers[NEAR, request]
    assert isinstance(outcome, RefusedOutcome)
    assert len(decided) == 2, "at first, and when the owner is asked again"


def test_a_broker_between_passes_the_request_up_to_the_owner() -> None:
    family = two_clouds(is_deep=True)
    ask(family, DESK, 0)
    far = ask(family, DESK, 1, URGENT)
    assert isinstance(far, GrantedOutcome)
    assert everys(family) == {"v0": 2, "v1": 2}
    end(family, DESK, far)
    rest(family, for_ns=6 * HOLD_NS)
    assert everys(family) == {"v0": 1}
    assert isinstance(ask(family, NEAR, 2, URGENT), GrantedOutcome)
    assert everys(family) == {"v0": 2, "v2": 2}
    assert told(family, DESK) == [2, 1, 2]


@pytest.mark.parametrize("is_deep", [False, True])
def test_a_full_channel_between_clouds_is_split_by_its_owner(*, is_deep: bool) -> None:
    family = two_clouds(narrow=("c1/b", "c2/b"), is_deep=is_deep)
    ask(family, DESK, 0)
    urgent = ask(family, DESK, 1, URGENT)
    assert isinstance(urgent, GrantedOutcome)
    assert everys(family) == {"v0": 2, "v1": 2}
    end(family, DESK, urgent)
    rest(family, for_ns=6 * HOLD_NS)
    assert everys(family) == {"v0": 1}
    assert told(family, DESK) == [2, 1]


def test_a_request_for_one_mode_only_lowers_its_equals_to_its_rate() -> None:
    family = two_clouds(narrow=("c1/b", "c2/b"))
    ask(family, DESK, 0)
    leaf = family.leaves["c2"]
    wanted = SubscriptionRequest(name=name(1), qos=ModalQos({1: QosRequest(every=2)}))
    request = leaf.send(DESK, "c2/e", Subscribe(subscriptions=(wanted,)))
    rest(family)
    (outcome,) = leaf.answers[DESK, request]
    assert isinstance(outcome, GrantedOutcome)
    assert told(family, DESK) == [2]


def test_a_split_between_clouds_that_takes_too_long_lowers_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scope_room, "SPLIT_S", 1e-5)
    family = two_clouds(240, narrow=("c1/b", "c2/b"))
    for number in range(4):
        ask(family, DESK, number)
    assert isinstance(ask(family, DESK, 4, URGENT), RefusedOutcome)
    assert everys(family) == {"v0": 1, "v1": 1, "v2": 1, "v3": 1}


@pytest.mark.parametrize("where", [NARROW, ("c1/b", "c2/b")])
def test_nobody_is_lowered_whose_variable_another_takes_at_the_same_rate(
    where: tuple[str, str],
) -> None:
    """The channel would carry every sample all the same."""
    family = two_clouds(narrow=where)
    assert isinstance(ask(family, DESK, 0), GrantedOutcome)
    assert isinstance(ask(family, DESK, 0, QosRequest()), GrantedOutcome)
    assert isinstance(ask(family, DESK, 1, URGENT), RefusedOutcome)
    assert told(family, DESK) == []


def test_an_owner_that_serves_first_come_splits_nothing() -> None:
    family = two_clouds(policy=BandPolicy.FIRST_COME, narrow=("c1/b", "c2/b"))
    ask(family, DESK, 0)
    assert isinstance(ask(family, DESK, 1, URGENT), RefusedOutcome)
    assert everys(family) == {"v0": 1}


@pytest.mark.parametrize("where", [NARROW, ("c1/b", "c2/b")])
def test_no_more_is_lowered_than_is_needed(where: tuple[str, str]) -> None:
    """Three contracts of two priorities: the lowest priority gives way, and the other stays."""
    family = two_clouds(120, narrow=where)
    ask(family, DESK, 0, replace(WIDE, priority=5))
    ask(family, DESK, 1, replace(WIDE, priority=3))
    assert isinstance(ask(family, DESK, 2, URGENT), GrantedOutcome)
    assert everys(family) == {"v0": 2, "v1": 1, "v2": 2}


def test_who_comes_and_goes_moves_others_ever_more_rarely() -> None:
    family = two_clouds()
    ask(family, DESK, 0)
    changes = []
    for _ in range(20):
        urgent = ask(family, DESK, 1, URGENT)
        assert isinstance(urgent, GrantedOutcome)
        end(family, DESK, urgent)
        rest(family, for_ns=2 * HOLD_NS)
        changes.append(len(told(family, DESK)))
    assert changes[9] < 10, "it is not moved each time"
    assert changes[19] - changes[9] <= changes[9]


def test_a_contract_is_raised_before_those_of_lower_priority() -> None:
    family = two_clouds(62)
    ask(family, DESK, 0)
    urgent = ask(family, NEAR, 1, URGENT)
    assert isinstance(urgent, GrantedOutcome)
    end(family, NEAR, urgent)
    assert isinstance(ask(family, NEAR, 2, replace(WIDE, priority=6)), GrantedOutcome)
    assert everys(family)["v0"] == 2
    rest(family, for_ns=6 * HOLD_NS)
    assert everys(family) == {"v0": 1, "v2": 30}


def test_a_killed_owner_raises_later_what_it_has_lowered() -> None:
    family = two_clouds()
    ask(family, DESK, 0)
    urgent = ask(family, DESK, 1, URGENT)
    assert isinstance(urgent, GrantedOutcome)
    family.kill("root")
    rest(family)
    end(family, DESK, urgent)
    rest(family, for_ns=6 * HOLD_NS)
    assert everys(family) == {"v0": 1}
    assert told(family, DESK)[-1] == 1


@pytest.mark.parametrize("qos", [QosRequest(), QosRequest(every_worst=60, priority=1)])
def test_what_has_no_band_or_a_higher_priority_gives_way_to_nobody(qos: QosRequest) -> None:
    family = two_clouds()
    ask(family, DESK, 0, qos)
    urgent = replace(URGENT, priority=2)
    assert isinstance(ask(family, DESK, 1, urgent), RefusedOutcome)
    assert isinstance(ask(family, NEAR, 2, urgent), RefusedOutcome)
    assert everys(family) == {"v0": 1}
