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

from gridstat.console.compose import build_router, connect_router
from gridstat.console.config import grid_from_text
from gridstat.console.grid import router_key, subscriber_key
from gridstat.console.static_plan import static_plan
from gridstat.endpoint import Receiver, Sender
from gridstat.model.rate_law import Period
from gridstat.router import Limits
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.console.compose import Address
    from gridstat.router import StatusRouter

HOPS = 4
SMALL = Limits(variables_max=64, rings_max=4, channels_max=16, pool_small=64, pool_large=4)
FREQUENCY = 1
SIXTY = Period(1, 60)
pytestmark = pytest.mark.cluster


def topology() -> str:
    routers = "".join(f'[[router]]\nname = "r{hop}"\n' for hop in range(HOPS))
    channels = "".join(
        f'[[channel]]\nfrom = "r{hop}"\nto = "r{hop + 1}"\n' for hop in range(HOPS - 1)
    )
    subscribers = "".join(
        f'[[subscriber]]\nname = "s{hop}"\nrouter = "r{hop}"\nevery = {hop + 1}\n'
        'variables = ["**"]\n'
        for hop in range(HOPS)
    )
    pmu = '[[pmu]]\nname = "a/b/c"\nrouter = "r0"\nrate = "60/s"\nquantities = ["frequency"]\n'
    return routers + channels + pmu + subscribers


class Chain:
    """The running chain: where to send, and a receiver at each hop."""

    def __init__(self, stack: ExitStack) -> None:
        grid = grid_from_text(topology(), file="chain")
        plan = static_plan(grid)
        self.receivers = [stack.enter_context(Receiver()) for _ in range(HOPS)]
        addresses: dict[str, Address] = {}
        for hop, receiver in enumerate(self.receivers):
            receiver.expect(FREQUENCY, SIXTY)
            receiver.start()
            addresses[subscriber_key(f"s{hop}")] = ("127.0.0.1", *receiver.ports)
        self.routers = [build_router(f"r{hop}", limits=SMALL) for hop in range(HOPS)]
        for router in self.routers:
            stack.enter_context(closing(router))
            addresses[router_key(router.name)] = ("127.0.0.1", *router.listen("127.0.0.1"))
        for router in self.routers:
            connect_router(router, plan.routers[router.name], addresses=addresses)
            router.start()
        self.sender = stack.enter_context(
            Sender(plan.channel_of_pmu["a/b/c"], addresses[router_key("r0")])
        )


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


@pytest.mark.feature("S0-66")
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
