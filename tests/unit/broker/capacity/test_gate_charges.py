"""Charges of contracts that cross one router on several paths between channels to other clouds."""

from __future__ import annotations

from fractions import Fraction

from msgspec import structs

from gridstat.broker.capacity.allocation import AllocatedPath, AllocationRequest
from gridstat.broker.capacity.planning import claims_of
from gridstat.model.qos import ModalQos, QosRequest
from tests.unit.broker.clouds import LINE, cloud, variable

ENTRIES = (("a", 101), ("a", 102))
EXITS = (("a", 201), ("a", 202))


def segment(number: int, *, count: int, every: int = 1) -> AllocationRequest:
    """A request for so many paths across router a, each by its own two channels."""
    return AllocationRequest(
        subscription_id=number,
        variable=variable(1, 30),
        sources=("a",),
        targets=("a",),
        qos=ModalQos({0: QosRequest(every=every, redundancy=count)}),
        entries=ENTRIES[:count],
        exits=EXITS[:count],
    )


def test_two_paths_across_one_router_load_it_twice() -> None:
    """They enter and leave by four channels; once they were charged as a single path."""
    resources = cloud(LINE)
    request = segment(1, count=2)
    granted = {0: request.qos.modes[0].desired(request.variable.period)}
    across = AllocatedPath(("a",), (), 0)
    claims = claims_of(request, granted, (across, across))
    resources.take(claims)
    assert resources.routers["a"].events.value == Fraction(4 * 30)
    resources.give_back(claims)
    assert not resources.routers["a"].events


def test_contracts_with_one_and_with_two_paths_share_a_channel_between_clouds() -> None:
    """What both take by the same channel reaches the router once; once it was charged twice."""
    resources = cloud(LINE)
    across, beside = AllocatedPath(("a",), (), 0), AllocatedPath(("a", "b"), (1,), 0)
    for number, paths, every in ((1, (across,), 1), (2, (across, beside), 4)):
        request = structs.replace(
            segment(number, count=len(paths), every=every),
            targets=("a", "b"),
            exits=(("a", 201), ("b", 202))[: len(paths)],
        )
        granted = {0: request.qos.modes[0].desired(request.variable.period)}
        resources.take(claims_of(request, granted, paths))
    # In by 101, in by 102, out by 201, and out to b.
    assert resources.routers["a"].events.value == 30 + Fraction(30, 4) + 30 + Fraction(30, 4)
    assert resources.routers["b"].events.value == Fraction(30, 4) + Fraction(30, 4)
