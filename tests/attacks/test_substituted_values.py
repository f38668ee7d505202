"""Attack: the values of a stream over two ways are replaced by those of a stranger on the wire.

He sends an event of every slot a moment before its publisher does: the first copy counts, the true
one is dropped as a duplicate, and the ledger shows nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lab.attacks.attacked_grid import PUBLISHER, SUBSCRIBER, WAYS

if TYPE_CHECKING:
    from lab.attacks.attacked_grid import AttackedGrid

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
VALUE = 4_711
SECONDS = 1.0


@pytest.mark.feature("S0-143", "S3-99")
@pytest.mark.parametrize(
    "ways",
    [
        pytest.param([(PUBLISHER, "e0"), (PUBLISHER, "e1")], id="behind the publisher"),
        pytest.param(WAYS, id="between routers"),
        pytest.param([("e2", SUBSCRIBER), ("e3", SUBSCRIBER)], id="before the subscriber"),
    ],
)
def test_no_value_is_replaced_on_any_hop_of_both_ways(
    attacked: AttackedGrid, ways: list[tuple[str, str]]
) -> None:
    hops, variables = attacked.hops(*ways), attacked.variable_ids()
    from_ns = time.time_ns()
    orders = {
        "variables": variables,
        "rate": attacked.rate,
        "seconds": SECONDS,
        "value": VALUE,
    }
    if len({hop.at for hop in hops}) == len(hops):
        for hop in hops:
            attacked.attacker(hop.at).begin("substitute", **hop.words, **orders)
        for hop in hops:
            attacked.attacker(hop.at).finish()
    else:  # One stranger alone can replace the values on both hops of a host in turn.
        for hop in hops:
            attacked.attacker(hop.at).ask("substitute", **hop.words, **orders)
    verdict = attacked.judged(from_ns)
    assert verdict.expected >= SECONDS * attacked.rate
    assert verdict.is_clean, str(verdict)
