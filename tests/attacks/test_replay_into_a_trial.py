"""Attack: a stranger brings an epoch on trial twice, and plays one datagram of it into both trials.

The sender is ahead of its time, after an outage. The stranger, who has no key, holds its datagrams
up. He sends a header of its epoch, so that the receiver tries it; lets one true datagram of it
through, then one of the epoch before that he had kept; waits until the trial is over; and does all
that again with the same datagram. The receiver of an end-point takes it over loopback; time is
virtual.
"""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Any, Final

import pytest

from gridstat.core._ends import Receiver
from gridstat.endpoint.end_keys import EndKeys
from gridstat.model.keys.key_settings import NumberedKey, Seed
from gridstat.model.keys.sending_keys import SendingKeys
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.router_messages import ChannelSeed, SeedAccepted
from tests.protocol.ends import MS, NOW_NS, eventually
from tests.protocol.grids import event
from tests.protocol.sealing import LINK, backends, sealed

EDGE: Final = "e0"
HOST: Final = "127.0.0.1"
AHEAD: Final = 5
STEP_NS: Final = NS_PER_S // 4
VARIABLE: Final = 1
SECRET: Final = bytes(range(32))


class Victim:
    """A receiver with its keys, and the true sender, whose datagrams the stranger holds up."""

    def __init__(self, seal_backend: str) -> None:
        self.now_ns = 0
        self.receiver = Receiver(
            keep="ring", only_sources=True, variables_max=256, seal_backend=seal_backend
        )
        self.receiver.open_source(LINK, is_sealed=True)
        self.receiver.expect(VARIABLE, None)
        self.receiver.start()
        answers: list[SeedAccepted] = []
        self.keys = EndKeys(lambda _, each: answers.append(each), clock_ns=lambda: self.now_ns)
        self.keys.source_opened(LINK, self.receiver, EDGE)
        self.keys.take(EDGE, ChannelSeed(LINK, 1, SECRET))
        self.sender = SendingKeys(Seed(LINK, 1, SECRET), answers[0].first_epoch, 0)

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds * NS_PER_S / STEP_NS)):
            self.now_ns += STEP_NS
            self.keys.step()

    def sealed(self, number: int, *, key: NumberedKey) -> bytes:
        return sealed(event(VARIABLE, NOW_NS + number * MS), counter=number, key=key)

    def facts(self) -> dict[str, int]:
        """All that an accepted datagram would move."""
        counters = self.receiver.counters()
        state = self.receiver.source_states()[LINK]
        return {
            **{name: counters[name] for name in ("in", "delivered", "duplicate")},
            **{name: state[name] for name in ("datagrams", "lost", "heard_ns", "newest_counter")},
        }


@backends
@pytest.mark.parametrize("waits_s", [2.0, 30.0])
def test_a_datagram_is_believed_in_one_trial_only(seal_backend: str, waits_s: float) -> None:
    victim = Victim(seal_backend)
    sender = victim.sender
    with (
        closing(victim.receiver) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        sent = 0

        def send(octets: bytes) -> dict[str, Any]:
            nonlocal sent
            sent += 1
            stranger.sendto(octets, (HOST, receiver.ports[0]))
            eventually(lambda: None if receiver.counters()["datagrams_in"] >= sent else "lost")
            return receiver.counters()

        send(victim.sealed(1, key=sender.key()))
        victim.pass_time(1)
        kept = victim.sealed(2, key=sender.key())
        for _ in range(AHEAD):
            sender.advance(victim.now_ns)
        true = victim.sealed(1_000, key=sender.key())
        header = bytearray(victim.sealed(3, key=sender.key()))
        header[-1] ^= 1
        for _ in range(40):  # The epoch is brought on trial.
            send(bytes(header))
            victim.pass_time(0.25)
            if send(bytes(header))["sealed_forged"]:
                break
        send(true)
        assert send(kept)["delivered"] == 3
        victim.pass_time(waits_s)
        before = victim.facts()
        for _ in range(60):  # It is brought on trial again, if it can be.
            send(true)
            victim.pass_time(1)
        assert victim.facts() == before
        assert send(victim.sealed(1_001, key=sender.key()))["delivered"] == 4, "the sender is heard"
