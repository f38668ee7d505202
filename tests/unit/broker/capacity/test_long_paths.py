"""Paths of very many routers inside a cloud: as many as a contract names, and none more."""

from __future__ import annotations

from itertools import pairwise

from gridstat.broker.capacity.allocator import Allocator
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import PathTooLong
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import PATH_ROUTERS_MAX, QosRequest
from tests.unit.broker.clouds import ask, cloud, grant, numbers, refuse, variable

SLOW = QosRequest(latency_us=10_000_000)


def chain(count: int) -> Allocator:
    """Routers r0, r1 and so on in a line."""
    return Allocator(cloud(pairwise(f"r{at}" for at in range(count))))


def add_line(allocator: Allocator, *names: str) -> None:
    """Channels from each to the next; routers that are not there yet are added."""
    resources = allocator.resources
    for name in names:
        if name not in resources.routers:
            resources.add_router(Router(name, events_per_s_max=1_000_000))
    for one, other in pairwise(names):
        number = ChannelId(max(resources.channels) + 1)
        resources.add_channel(EventChannel(number, one, other, latency_us=100))


def test_a_path_of_as_many_routers_as_a_contract_names_is_granted() -> None:
    last = PATH_ROUTERS_MAX - 1
    contract = grant(chain(PATH_ROUTERS_MAX), ask(1, variable(), ("r0", f"r{last}"), SLOW))
    assert len(contract.paths[0].routers) == PATH_ROUTERS_MAX


def test_a_path_of_one_router_more_is_refused_with_a_reason_and_leaves_nothing() -> None:
    allocator = chain(PATH_ROUTERS_MAX + 1)
    before = numbers(allocator.resources)
    ends = ("r0", f"r{PATH_ROUTERS_MAX}")
    refusal = refuse(allocator, ask(1, variable(), ends, SLOW))
    assert refusal.code == PathTooLong.code == 1106
    assert f"{PATH_ROUTERS_MAX + 1} routers" in refusal.reason
    assert refusal.bottleneck == f"from r0 to r{PATH_ROUTERS_MAX}"
    assert refusal.shortfall == "1 routers"
    assert refusal.hint
    assert numbers(allocator.resources) == before
    grant(allocator, ask(1, variable(), ("r0", f"r{PATH_ROUTERS_MAX - 1}"), SLOW))


def test_a_path_that_is_too_long_is_not_chosen_for_carrying_the_variable_already() -> None:
    last = f"r{PATH_ROUTERS_MAX - 1}"
    allocator = chain(PATH_ROUTERS_MAX)
    grant(allocator, ask(1, variable(), ("r0", last), SLOW))
    add_line(allocator, last, "x", "target")
    add_line(allocator, "r0", "y0", "y1", "y2", "target")
    contract = grant(allocator, ask(2, variable(), ("r0", "target"), SLOW))
    assert contract.paths[0].routers == ("r0", "y0", "y1", "y2", "target")


def test_a_new_way_that_would_be_too_long_is_no_way_round_a_failure() -> None:
    allocator = chain(PATH_ROUTERS_MAX + 1)
    last = f"r{PATH_ROUTERS_MAX}"
    add_line(allocator, "r0", last)
    contract = grant(allocator, ask(1, variable(), ("r0", last), SLOW))
    assert contract.paths[0].routers == ("r0", last)
    allocator.release(1)
    allocator.resources.remove_channel(contract.paths[0].channel_ids[0])
    assert refuse(allocator, ask(1, variable(), ("r0", last), SLOW)).code == PathTooLong.code
