"""Attack: a few events stamped with a time to come make routers drop the true ones as copies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lab.attacks.attacked_grid import SUBSCRIBER, WAYS
from lab.attacks.forgery import event, forged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.attacks.attacked_grid import AttackedGrid, Hop

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
PAIRS = 8
"""Two events near each other, beyond the window of copies, move it to where they are."""
SLOTS_AHEAD = 10_000
NS_PER_S = 1_000_000_000


def stamped_ahead(hop: Hop, variable: int, rate: int) -> Iterator[str]:
    slot = time.time_ns() * rate // NS_PER_S
    for pair in range(PAIRS):
        for step in range(2):
            created_ns = (slot + SLOTS_AHEAD * (pair + 1) + step) * NS_PER_S // rate
            one = event(variable, created_ns, 0)
            for datagram in forged(hop.heading, [one], ahead=1_000 + 2 * pair + step):
                yield datagram.hex()


def test_events_from_the_future_silence_nothing(attacked: AttackedGrid) -> None:
    hops = attacked.hops(*WAYS, ("e2", SUBSCRIBER), ("e3", SUBSCRIBER))
    variables = attacked.variable_ids()
    from_ns = time.time_ns()
    for hop in hops:
        datagrams = [
            text for variable in variables for text in stamped_ahead(hop, variable, attacked.rate)
        ]
        attacked.attacker(hop.at).ask("send", **hop.target, datagrams=datagrams)
    time.sleep(1.0)  # Events of the time in which the stream would be silent.
    verdict = attacked.judged(from_ns)
    assert verdict.expected >= attacked.rate
    assert verdict.is_clean, str(verdict)
