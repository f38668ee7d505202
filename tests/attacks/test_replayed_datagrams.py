"""Attack: a stranger records the datagrams of a channel and sends them again, here and there.

Judged by the ledger (nothing arrives twice), and by the routers' counters: a receiver never counts
more datagrams of a channel than its sender has sent, and no figure of losses moves.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import pytest

from gridstat.model.key_schedule import OLD_EPOCH_NS
from gridstat.model.rate_law import NS_PER_S
from lab.attacks.attacked_grid import (
    EPOCH_S,
    PUBLISHER,
    SUBSCRIBER,
    URGENT_PORT,
    WAYS,
    ChannelWatch,
)

if TYPE_CHECKING:
    from lab.attacks.attacked_grid import AttackedGrid, Hop

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
REPLAYED = 2_000
PER_S = 5_000
RECORDED_S = 1.0
SILENT_S = 1.5
ACCOUNTED_NS = NS_PER_S // 10
"""A publisher that is stopped may have sent an event that is in no account yet."""
"""Longer than the second after which a stream may continue anywhere."""
WINDOW_S = 4.5
"""Longer than the 256 slots in which copies are known."""
EPOCHS_S_MAX = 40.0
EPOCHS_OVER = 2 + math.ceil(OLD_EPOCH_NS / (EPOCH_S * NS_PER_S))
"""Epochs after which a recording's one is no longer accepted as an old one."""
SENT_MIN = 20
"""Least datagrams of a replayed recording: one that sends nothing would show nothing."""


class Before(ChannelWatch):
    """State of a channel and its stream before an attack."""

    def __init__(self, attacked: AttackedGrid, hop: Hop, router: str) -> None:
        super().__init__(attacked, hop, router)
        self._from_ns = time.time_ns()
        self._rejected = attacked.rejected(router)

    def assert_unmoved(self, *, rejected: int) -> None:
        """The attack had no effect, and so many datagrams were rejected as not authentic."""
        verdict = self._attacked.judged(self._from_ns)
        assert verdict.is_clean, str(verdict)
        assert self.complaint() is None
        found = sum(self._attacked.rejected(self._router).values()) - sum(self._rejected.values())
        assert found >= rejected


def rejected_by(attacked: AttackedGrid, *routers: str) -> int:
    return sum(sum(attacked.rejected(router).values()) for router in routers)


def test_on_the_same_channel(attacked: AttackedGrid) -> None:
    [hop] = attacked.hops(("e0", "e2"), seconds=RECORDED_S)
    before = Before(attacked, hop, "e2")
    attacked.attacker("e0").ask(
        "replay", **hop.target, channel_id=hop.channel_id, count=REPLAYED, per_s=PER_S
    )
    before.assert_unmoved(rejected=REPLAYED)


def test_on_the_other_channel_of_the_stream(attacked: AttackedGrid) -> None:
    hop, other = attacked.hops(*WAYS, seconds=RECORDED_S)
    before = Before(attacked, other, "e3")
    events = attacked.events("e3")
    stranger = attacked.attacker("e0")
    sends = {"host": other.host, "port": other.port, "count": REPLAYED, "per_s": PER_S}
    # e0 has no wire to e3: the recording goes there by the stranger's own host.
    recording = {"channel_id": hop.channel_id, "changed": {"channel_id": other.channel_id}}
    exported = stranger.ask("export", channel_id=hop.channel_id)["datagrams"]
    mallory = attacked.attacker("south/mallory")
    mallory.ask("import", host=hop.host, port=hop.port, datagrams=exported)
    mallory.ask("replay", **sends, **recording)
    mallory.ask("replay", **sends, channel_id=hop.channel_id)
    before.assert_unmoved(rejected=2 * REPLAYED)
    assert attacked.events("e3")["duplicate"] == events["duplicate"]


def test_on_the_urgent_port(attacked: AttackedGrid) -> None:
    [hop] = attacked.hops(("e0", "e2"), seconds=RECORDED_S)
    before = Before(attacked, hop, "e2")
    policed = attacked.events("e2")["policed_port"]
    attacked.attacker("e0").ask(
        "replay",
        **{**hop.target, "port": URGENT_PORT},
        channel_id=hop.channel_id,
        count=REPLAYED,
        per_s=PER_S,
    )
    before.assert_unmoved(rejected=REPLAYED)
    assert attacked.events("e2")["policed_port"] == policed


def test_after_silence(attacked: AttackedGrid) -> None:
    from_ns = time.time_ns()
    hops = attacked.hops(*WAYS, seconds=RECORDED_S)
    time.sleep(WINDOW_S)
    publisher = attacked.grid.daemons[PUBLISHER]
    rejected, sent = rejected_by(attacked, "e2", "e3"), 0
    until_ns = time.time_ns() - ACCOUNTED_NS
    publisher.pause()
    try:
        time.sleep(SILENT_S)
        for hop in hops:
            done = attacked.attacker(hop.at).ask(
                "replay", **hop.target, channel_id=hop.channel_id, per_s=200
            )
            assert done["sent"] >= SENT_MIN, "the recording is empty"
            sent += done["sent"]
        time.sleep(0.2)
        verdict = attacked.judged(from_ns, until_ns)
        assert rejected_by(attacked, "e2", "e3") - rejected >= sent
    finally:
        publisher.resume()
    assert verdict.delivered >= attacked.rate
    assert verdict.is_clean, str(verdict)


def test_after_the_epoch_is_over(attacked: AttackedGrid) -> None:
    from_ns = time.time_ns()
    [old] = attacked.hops(("e0", "e2"), seconds=RECORDED_S)
    exported = attacked.attacker("e0").ask("export", channel_id=old.channel_id)["datagrams"]
    deadline_s = time.monotonic() + EPOCHS_S_MAX
    while True:
        [hop] = attacked.hops(("e0", "e2"), seconds=0.3)
        if (hop.heading.epoch - old.heading.epoch) % 256 >= EPOCHS_OVER:
            break
        assert time.monotonic() < deadline_s, f"epoch {hop.heading.epoch} goes on and on"
    before = Before(attacked, hop, "e2")
    stranger = attacked.attacker("e0")
    stranger.ask("import", host=hop.host, port=hop.port, datagrams=exported)
    for changed in ({}, {"epoch": hop.heading.epoch}, {"epoch": (hop.heading.epoch + 1) % 256}):
        words = {"channel_id": hop.channel_id, "count": REPLAYED, "per_s": PER_S}
        known = attacked.rejected("e2")["replayed"]
        stranger.ask("replay", **hop.target, **words, changed=changed)
        if not changed:
            found = attacked.rejected("e2")["replayed"] - known
            assert found == 0, "no window knows the recording: its key is gone"
    before.assert_unmoved(rejected=3 * REPLAYED)
    verdict = attacked.judged(from_ns)
    assert verdict.is_clean, str(verdict)


def test_after_the_router_restarted(attacked: AttackedGrid) -> None:
    from_ns = time.time_ns()
    [hop] = attacked.hops(("e0", "e2"), seconds=RECORDED_S)
    sent = attacked.sent(hop)
    attacked.grid.daemons["e2"].kill()
    stranger = attacked.attacker("e0")
    # The recording is played all the time until the router is back, and a little longer.
    attacked.grid.daemons["e2"].start()
    stranger.begin("replay", **hop.target, channel_id=hop.channel_id, count=5 * PER_S, per_s=PER_S)
    attacked.grid.daemons["e2"].wait_ready()
    assert stranger.finish()["sent"] >= 4 * PER_S, "few may be lost while no port is open"
    attacked.await_whole()
    # The counters of the router began anew; it was not yet there for the first datagrams.
    assert rejected_by(attacked, "e2") >= SENT_MIN
    received = attacked.source("e2", hop.channel_id)["received_datagrams"]
    assert received <= attacked.sent(hop) - sent
    verdict = attacked.judged(from_ns)
    assert verdict.is_clean, str(verdict)


def test_after_the_subscriber_restarted(attacked: AttackedGrid) -> None:
    from_ns = time.time_ns()
    [old] = attacked.hops(("e2", SUBSCRIBER), seconds=RECORDED_S)
    exported = attacked.attacker("e2").ask("export", channel_id=old.channel_id)["datagrams"]
    attacked.grid.daemons[SUBSCRIBER].kill()
    attacked.grid.restart(SUBSCRIBER)
    stranger = attacked.attacker("e2")
    [hop] = attacked.hops(("e2", SUBSCRIBER), seconds=RECORDED_S)
    stranger.ask("import", host=hop.host, port=hop.port, datagrams=exported)
    publisher = attacked.grid.daemons[PUBLISHER]
    publisher.pause()
    try:
        time.sleep(SILENT_S)
        changed = {"channel_id": hop.channel_id}
        words = {**hop.target, "channel_id": old.channel_id, "per_s": 200}
        for more in ({"changed": changed}, {}):
            assert stranger.ask("replay", **words, **more)["sent"] >= SENT_MIN
        time.sleep(0.2)
        verdict = attacked.judged(from_ns)
    finally:
        publisher.resume()
    # Between kill and restart nobody received: only what came twice counts.
    assert verdict.delivered >= attacked.rate
    assert not verdict.duplicate, str(verdict)
    assert not verdict.altered, str(verdict)
