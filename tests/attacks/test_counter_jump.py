"""Attack: one datagram with a huge counter makes a channel look lossy, or restarted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lab.attacks.attacked_grid import WAYS, ChannelWatch
from lab.attacks.forgery import event, forged

if TYPE_CHECKING:
    from lab.attacks.attacked_grid import AttackedGrid

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
JUMPS = (100, 2_047, 2_048, 1 << 20, (1 << 24) + 5, 1 << 31, (1 << 32) + 5, 1 << 63)


def test_a_forged_counter_moves_neither_losses_nor_the_window(attacked: AttackedGrid) -> None:
    hops, [variable, *_] = attacked.hops(*WAYS), attacked.variable_ids()
    from_ns = time.time_ns()
    watches = [ChannelWatch(attacked, hop, to) for hop, (_, to) in zip(hops, WAYS, strict=True)]
    for hop in hops:
        datagrams = [
            datagram.hex()
            for ahead in JUMPS
            for events in ((), (event(variable, time.time_ns(), 0),))
            for datagram in forged(hop.heading, events, ahead=ahead)
        ]
        attacked.attacker(hop.at).ask("send", **hop.target, datagrams=datagrams)
    time.sleep(0.5)
    verdict = attacked.judged(from_ns)
    assert verdict.is_clean, str(verdict)
    assert [watch.complaint() for watch in watches] == [None, None]
