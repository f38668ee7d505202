"""`python -m lab.attacks.corpus`: a million forged and a million replayed datagrams.

A grid carries a stream over two ways meanwhile. Every datagram of the corpus must be counted as
rejected, or not have reached the router; each attack goes on until as many as it asked for were
counted by the router itself. The stream must lose nothing, and no figure of losses may move. A
router that dies under forged probes must be noticed as soon as without them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.attacks.attacked_grid import (
    MALLORY,
    PUBLISHER,
    URGENT_PORT,
    WAYS,
    AttackedGrid,
    ChannelWatch,
    Hop,
)
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

Words = dict[str, Any]
FOLDER: Final = Path("build/lab/attacks")
FORGED: Final = 1_000_000
REPLAYED: Final = 1_000_000
PER_S: Final = 30_000
SILENT_S: Final = 1.5
EPOCH_S: Final = 20.0
"""Longer than most attacks, so that they meet a key that is in use."""
EPOCHS_S_MAX: Final = 120.0
OLD_EPOCHS: Final = 2
OLD_S: Final = 12.0
"""Longer than an epoch is accepted after its end."""
RECORD_S: Final = 2.0
NOTICED_S_MORE: Final = 0.5
SETTLE_S: Final = 0.5
SENT_SHARE_MIN: Final = 0.9
"""Part of the datagrams of an attack that must have left the stranger."""
ROUNDS_MAX: Final = 12
"""Times that an attack is made, since a socket too full drops some datagrams unread."""
LEAST: Final = 1_000
"""Datagrams of a round, however few are still to be rejected."""
PLAIN_SHARE: Final = 5
"""One plain datagram for so many forged ones, which are no part of them: they are never opened."""
FORGED_KINDS: Final = ("forged", "altered")
PLAIN_KIND: Final = "unsealed"


@dataclass(slots=True)
class Score:
    """Sums of a run; every complaint fails it."""

    sent: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    """By attack, what routers counted as rejected, at most as many as were sent."""
    missing: int = 0
    """Datagrams that are neither rejected nor dropped by the kernel."""
    dropped: int = 0
    complaints: list[str] = field(default_factory=list)


class Corpus:
    """Attacks one after the other on a grid under load, each judged separately."""

    def __init__(self, attacked: AttackedGrid, tell: Callable[[str], None]) -> None:
        self._attacked, self._tell = attacked, tell
        self.score = Score()

    def forge(self, count: int) -> None:
        """Send forged datagrams on a known channel: with an invented tag, with that of a true one,
        and some without any."""
        [hop], [variable, *_] = self._recorded(WAYS[0]), self._attacked.variable_ids()
        words = {**hop.words, "variable": variable, "per_s": PER_S}
        self._attack_until(count // 2, "forged", hop, "forge", **words)
        self._attack(PLAIN_KIND, hop, "forge", count=count // PLAIN_SHARE, is_plain=True, **words)
        [hop] = self._recorded(WAYS[0])
        words = {**hop.target, "channel_id": hop.channel_id, "per_s": PER_S}
        self._attack_until(count - count // 2, "altered", hop, "alter", **words)

    def replay(self, count: int) -> None:
        """Send recordings again: at once, elsewhere, and after all that could make them new."""
        part = count // 6
        [hop, other] = self._recorded(*WAYS)
        words: Words = {"channel_id": hop.channel_id, "per_s": PER_S}
        self._attack_until(part, "same channel", hop, "replay", **hop.target, **words)
        urgent: Words = {"host": hop.host, "port": URGENT_PORT}
        self._attack_until(part, "other port", hop, "replay", **urgent, **words)
        self._replay_elsewhere(hop, other, part)
        self._replay_old_epoch(hop, part)
        self._replay_after_silence(part)
        self._replay_after_restart(count - 5 * part)

    def _replay_elsewhere(self, hop: Hop, other: Hop, count: int) -> None:
        recording = self._attacked.attacker(hop.at).ask("export", channel_id=hop.channel_id)
        self._attacked.attacker(MALLORY).ask("import", **hop.target, **recording)
        words = {"channel_id": hop.channel_id, "per_s": PER_S, **other.target}
        there = {"changed": {"channel_id": other.channel_id, "epoch": other.heading.epoch}}
        for part, more in ((count // 2, there), (count - count // 2, {})):
            words_here = {**words, **more}
            self._attack_until(part, "other channel", other, "replay", at=MALLORY, **words_here)

    def _replay_old_epoch(self, old: Hop, count: int) -> None:
        recording = self._attacked.attacker(old.at).ask("export", channel_id=old.channel_id)
        hop, deadline_s = old, time.monotonic() + EPOCHS_S_MAX
        time.sleep(OLD_S)
        while (hop.heading.epoch - old.heading.epoch) % 256 < OLD_EPOCHS:
            if time.monotonic() > deadline_s:
                raise LabError(f"the epoch is still {hop.heading.epoch}")
            [hop] = self._recorded(WAYS[0])
        self._attacked.attacker(old.at).ask("import", **hop.target, **recording)
        words = {"channel_id": hop.channel_id, "per_s": PER_S, **hop.target}
        parts = {old.heading.epoch: count // 2, hop.heading.epoch: count - count // 2}
        for epoch, part in parts.items():
            changed = {"epoch": epoch}
            self._attack_until(part, "old epoch", hop, "replay", changed=changed, **words)

    def _replay_after_silence(self, count: int) -> None:
        [hop] = self._recorded(WAYS[0])
        publisher = self._attacked.grid.daemons[PUBLISHER]
        publisher.pause()
        try:
            time.sleep(SILENT_S)
            words = {**hop.target, "channel_id": hop.channel_id, "per_s": PER_S}
            self._attack_until(count, "after silence", hop, "replay", **words)
        finally:
            publisher.resume()
        self._attacked.await_whole()

    def _replay_after_restart(self, count: int) -> None:
        """Replay to a router that was restarted, which has only the counters of its own life."""
        [hop] = self._recorded(WAYS[0])
        daemon = self._attacked.grid.daemons["e2"]
        daemon.kill()
        self._attacked.grid.restart("e2")
        self._attacked.await_whole()
        words = {**hop.target, "channel_id": hop.channel_id, "per_s": PER_S}
        self._attack_until(count, "after restart", hop, "replay", **words)

    def notice_death(self) -> None:
        """Kill a router, without and with forged probes of its channel."""
        times_s = {name: self._noticed_s(is_forged=name == "forged") for name in ("true", "forged")}
        self._tell(f"a dead router is noticed after {times_s}")
        if times_s["forged"] > times_s["true"] + NOTICED_S_MORE:
            self.score.complaints.append(f"a dead router is noticed late: {times_s}")

    def _noticed_s(self, *, is_forged: bool) -> float:
        grid, [hop] = self._attacked.grid, self._recorded(WAYS[0])
        stranger = self._attacked.attacker(hop.at)
        if is_forged:
            stranger.begin("probe", **hop.words, seconds=5.0, per_s=500)
        grid.daemons["e0"].kill()
        began_s = time.monotonic()

        def complaint() -> str | None:
            [channel] = [
                each for each in grid.survey()["channels"] if each["label"] == "c1/e0→c1/e2"
            ]
            return "the channel counts as up" if channel["is_up"] else None

        try:
            grid.wait_for(complaint, within_s=10.0)
            noticed_s = time.monotonic() - began_s
        finally:
            if is_forged:
                stranger.finish()
            grid.restart("e0")
        self._attacked.await_whole()
        return round(noticed_s, 2)

    def _recorded(self, *ways: tuple[str, str]) -> list[Hop]:
        self._attacked.await_whole()
        return self._attacked.hops(*ways, seconds=RECORD_S)

    def _attack_until(
        self, count: int, name: str, hop: Hop, do: str, *, at: str = "", **words: object
    ) -> None:
        """Repeat an attack until the router has counted so many of its datagrams as rejected."""
        left = count
        for _ in range(ROUNDS_MAX):
            left -= self._attack(name, hop, do, at=at, count=max(left, LEAST), **words)
            if left <= 0:
                return
        self.score.complaints.append(f"{name}: {left} of {count} datagrams were never rejected")

    def _attack(self, name: str, hop: Hop, do: str, *, at: str = "", **words: object) -> int:
        """Let a stranger act; judge the channel, the stream, and the router's own counts. Return
        how many of his datagrams it has rejected."""
        attacked, score = self._attacked, self.score
        router = next(far for near, far in WAYS if near == hop.at)
        watch, from_ns = ChannelWatch(attacked, hop, router), time.time_ns()
        rejected, dropped = attacked.rejected(router), attacked.kernel_dropped(router)
        sent = int(attacked.attacker(at or hop.at).ask(do, **words)["sent"])
        time.sleep(SETTLE_S)
        found = sum(attacked.rejected(router).values()) - sum(rejected.values())
        lost = attacked.kernel_dropped(router) - dropped
        score.sent[name] = score.sent.get(name, 0) + sent
        score.rejected[name] = score.rejected.get(name, 0) + min(found, sent)
        score.dropped += lost
        score.missing += max(0, sent - found - lost)
        verdict = attacked.judged(from_ns)
        wrong = [] if verdict.is_clean else [str(verdict)]
        wrong += [complaint] if (complaint := watch.complaint()) is not None else []
        asked = words.get("count")
        wrong += shortfalls(
            asked if isinstance(asked, int) else 0, sent=sent, rejected=found, dropped=lost
        )
        score.complaints += [f"{name}: {text}" for text in wrong]
        reasons = {
            reason: count - rejected[reason]
            for reason, count in attacked.rejected(router).items()
            if count != rejected[reason]
        }
        state = "; ".join(wrong) or "no effect"
        self._tell(f"{name}: {sent:,} sent, {found:,} rejected {reasons}: {state}")
        return min(found, sent)


def shortfalls(asked: int, *, sent: int, rejected: int, dropped: int) -> list[str]:
    """Return what is missing from an attack of so many datagrams, and from its rejection."""
    found = []
    if sent == 0 or sent < SENT_SHARE_MIN * asked:
        found.append(f"only {sent} of {asked} datagrams were sent")
    if rejected + dropped < sent:
        found.append(f"{sent - rejected - dropped} of {sent} datagrams were not rejected")
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.attacks.corpus", description=__doc__)
    parser.add_argument("--forged", type=int, default=FORGED, help="how many forged ones to reject")
    parser.add_argument(
        "--replayed", type=int, default=REPLAYED, help="how many replayed ones to reject"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for files and logs")
    asked = parser.parse_args(argv)
    shutil.rmtree(asked.folder, ignore_errors=True)
    began_s = time.monotonic()
    with AttackedGrid(asked.folder, epoch_s=EPOCH_S) as attacked:
        corpus = Corpus(attacked, tell)
        corpus.forge(asked.forged)
        corpus.replay(asked.replayed)
        corpus.notice_death()
    facts = summary(corpus.score, time.monotonic() - began_s)
    tell(json.dumps(facts))
    return 0 if facts["is_passed"] else 1


def summary(score: Score, took_s: float) -> dict[str, Any]:
    """Return the totals as flat fields; a run without attacks of both kinds has not passed."""
    forged = sum(score.rejected.get(name, 0) for name in FORGED_KINDS)
    plain = score.rejected.get(PLAIN_KIND, 0)
    replayed = sum(score.rejected.values()) - forged - plain
    return {
        "forged_rejected": forged,
        "replayed_rejected": replayed,
        "plain_rejected": plain,
        "sent": sum(score.sent.values()),
        "kernel_dropped": score.dropped,
        "accepted": score.missing,
        "complaints": score.complaints,
        "took_s": round(took_s, 1),
        "is_passed": min(forged, replayed) > 0 and not score.complaints and score.missing == 0,
    }


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
