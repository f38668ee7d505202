"""Four routers in a row in one process: what a publisher stamped is what every subscriber reads.

Sender ──▶ 1 ──▶ 2 ──▶ 3 ──▶ 4
           │     │     │     │
           ▼     ▼     ▼     ▼      a Receiver at each
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from gridstat.core._core import Core
from gridstat.core.rows import ChannelSpec, Limits
from gridstat.endpoint import Receiver, Sender
from gridstat.model.identifiers import ChannelId, PathId, VariableId
from gridstat.model.rate_law import Period
from gridstat.router.path_table import CarriedVariable, Path
from gridstat.router.status_router import StatusRouter, TableChange
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

HOPS = 4
SMALL = Limits(variables_max=64, rings_max=4, channels_max=16, pool_small=64, pool_large=4)
FREQUENCY = VariableId(1)
SIXTY = Period(1, 60)
PUBLISHER = ChannelId(100)
pytestmark = pytest.mark.cluster


class Chain:
    """The running chain: where to send, and a receiver at each hop, every 1st, 2nd, … slot.

    Channel n leads from router n to the next, channel 10 + n to the receiver at router n.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.receivers = [stack.enter_context(Receiver()) for _ in range(HOPS)]
        self.routers = [
            StatusRouter(f"r{hop}", Core(SMALL), clock_ns=time.monotonic_ns) for hop in range(HOPS)
        ]
        places = []
        for router in self.routers:
            stack.enter_context(closing(router))
            places.append(("127.0.0.1", *router.listen("127.0.0.1")))
        for hop, (router, receiver) in enumerate(zip(self.routers, self.receivers, strict=True)):
            receiver.expect(FREQUENCY, SIXTY)
            receiver.start()
            onward = places[hop + 1] if hop + 1 < HOPS else None
            self._set_up(router, hop, onward, local=("127.0.0.1", *receiver.ports))
            router.start()
        self.sender = stack.enter_context(Sender(PUBLISHER, places[0]))

    @staticmethod
    def _set_up(
        router: StatusRouter,
        hop: int,
        onward: tuple[str, int, int] | None,
        *,
        local: tuple[str, int, int],
    ) -> None:
        source = PUBLISHER if hop == 0 else ChannelId(hop)
        router.open_source(source, is_publisher=hop == 0)
        router.open_channel(ChannelSpec(11 + hop, address=local))
        paths = {PathId(hop): Path(FREQUENCY, ChannelId(11 + hop), every=hop + 1)}
        if onward is not None:
            router.open_channel(ChannelSpec(1 + hop, address=onward))
            for later in range(hop + 1, HOPS):
                paths[PathId(10 + later)] = Path(FREQUENCY, ChannelId(1 + hop), every=later + 1)
        carried = CarriedVariable(FREQUENCY, SIXTY, source=source if hop == 0 else 0)
        router.change(TableChange(carried=(carried,), set_up=paths))


@pytest.fixture
def chain() -> Iterator[Chain]:
    with ExitStack() as stack:
        yield Chain(stack)


@pytest.mark.feature("S3-109", "S3-3")
def test_the_stamp_at_every_subscriber_is_the_publishers_own(chain: Chain) -> None:
    """Stamps are a little off their slots, as real ones are, and pass one to four routers."""
    first = time.time_ns() * 60 // 1_000_000_000
    stamps = [(first + slot) * 1_000_000_000 // 60 + 977 * slot for slot in range(120)]
    for created_ns in stamps:
        assert chain.sender.send(FREQUENCY, 60.0, created_ns=created_ns)
    for hop, receiver in enumerate(chain.receivers):
        every = hop + 1
        due = [stamp for slot, stamp in enumerate(stamps) if (first + slot) % every == 0]
        arrived: list[int] = []
        eventually(partial(_missing, receiver, arrived, due=len(due)))
        assert arrived == due


@pytest.mark.feature("S0-64", "S0-66")
def test_each_channel_carries_one_copy_of_what_is_due_beyond_it(chain: Chain) -> None:
    first = time.time_ns() * 60 // 1_000_000_000
    for slot in range(first, first + 120):
        assert chain.sender.send(FREQUENCY, 60.0, created_ns=slot * 1_000_000_000 // 60)
    beyond = [(2, 3, 4), (3, 4), (4,)]
    for router, divisors in zip(chain.routers, beyond, strict=False):
        due = sum(
            any(slot % every == 0 for every in divisors) for slot in range(first, first + 120)
        )
        onward = min(router.channel_counters())
        eventually(partial(_unsent, router, onward, due=due))


def _missing(receiver: Receiver, arrived: list[int], *, due: int) -> str | None:
    arrived.extend(receiver.read(timeout_s=0.1)["created_ns"].tolist())
    return None if len(arrived) >= due else f"{len(arrived)} of {due} arrived"


def _unsent(router: StatusRouter, channel_id: int, *, due: int) -> str | None:
    sent = router.channel_counters()[channel_id]["sent"]
    return None if sent == due else f"{sent} sent of {due}"
