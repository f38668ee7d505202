"""A small grid under a protection-like stream over two ways, and strangers in its namespaces.

    north/pmu-0 ── e0 ── e2 ── centre/view-0       south/mallory has a certificate, and a wire
         └──────── e1 ── e3 ───────┘               to every edge; centre/mirror one to e2

Every event is judged: what the publisher sent must be what the subscriber got, once each.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from lab.attacks.attacker import Attacker
from lab.attacks.forgery import Heading
from lab.declared_delay import DELAY_MS
from lab.errors import LabError
from lab.grid import Grid
from lab.grid_files import DATA_PORT, URGENT_PORT
from lab.grid_plan import EndPointPlan, GridPlan, LinkPlan, RouterPlan
from lab.ledger import Verdict, Window
from lab.load import GridLoad, LoadPlan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METRICS_PORT: Final = 7_003
RATE: Final = 60
VARIABLES: Final = 2
SETTLE_S: Final = 3.0
"""Time after which a missing event counts as lost."""
EPOCH_S: Final = 3.0
"""Life of a key; short, so that recordings outlive the key of their datagrams."""
SILENT_MS_MAX: Final = 500
"""Limit for a busy machine, where a router may be silent for the usual 100 ms."""
PUBLISHER: Final = "north/pmu-0"
SUBSCRIBER: Final = "centre/view-0"
MALLORY: Final = "south/mallory"
"""An end-point that has a certificate, and no right to anything but its own name."""
MIRROR: Final = "centre/mirror"
"""An end-point that may read what the subscriber may read."""
RECORD_S: Final = 1.0
PLACES: Final = ("e0", "e1", "e2", "e3", PUBLISHER, SUBSCRIBER, MALLORY, MIRROR)
WAYS: Final = (("e0", "e2"), ("e1", "e3"))
"""The channels between routers, one of each way of the stream."""

RULES: Final = f"""
[[access_rule]]
name = "north-publishes"
who = "c1/north/**"
may = ["publish"]
what = "c1/north/**"
delay_ms_max = {DELAY_MS}

[[access_rule]]
name = "centre-reads"
who = "c1/centre/**"
may = ["subscribe", "find"]
what = "c1/north/**"
"""
"""Access rules; there is none for `south/mallory`."""


def attacked_plan() -> GridPlan:
    edges = tuple(RouterPlan(f"e{number}", is_edge=True) for number in range(4))
    return GridPlan(
        routers=edges,
        links=(LinkPlan("e0", "e2"), LinkPlan("e1", "e3")),
        end_points=(
            EndPointPlan(PUBLISHER, ("e0", "e1")),
            EndPointPlan(SUBSCRIBER, ("e2", "e3")),
            EndPointPlan(MALLORY, tuple(router.name for router in edges)),
            EndPointPlan(MIRROR, ("e2",)),
        ),
    )


@dataclass(frozen=True, slots=True)
class Hop:
    """A channel as a stranger beside its sender sees it."""

    at: str
    """Namespace in which the stranger sits."""
    host: str
    port: int
    heading: Heading

    @property
    def channel_id(self) -> int:
        return self.heading.channel_id

    @property
    def target(self) -> dict[str, Any]:
        return {"host": self.host, "port": self.port}

    @property
    def words(self) -> dict[str, Any]:
        """Return the words of an order that names the channel."""
        fields = [getattr(self.heading, name) for name in Heading.__slots__]
        return {**self.target, "heading": fields}


class AttackedGrid:
    """A whole grid under load, with a stranger in every namespace, while the `with` block lasts.

    `judged` measures the harm of an attack: events lost, doubled, altered or never published.
    """

    def __init__(
        self,
        folder: Path,
        *,
        load: LoadPlan | None = None,
        as_user: bool | None = None,
        epoch_s: float = EPOCH_S,
    ) -> None:
        self.grid = Grid(
            attacked_plan(),
            folder,
            is_relayed=False,
            as_user=as_user,
            timing={"silent_ms_max": SILENT_MS_MAX},
            keys={"epoch_s": epoch_s},
            rules=RULES,
            metrics_port=METRICS_PORT,
        )
        self._plan = load or LoadPlan(variables=VARIABLES, rate=RATE, idle=(MALLORY, MIRROR))
        self._stack = ExitStack()
        self._attackers: dict[str, Attacker] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.grid)
            self.grid.start()
            self.load = GridLoad(self.grid, self._plan)
            self.load.start()
            for place in PLACES:
                self._attackers[place] = stack.enter_context(Attacker(self.grid.namespaces[place]))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.__exit__(*details)  # type: ignore[arg-type]

    @property
    def rate(self) -> int:
        return self._plan.rate

    def attacker(self, place: str) -> Attacker:
        """Return the stranger in a namespace."""
        return self._attackers[place]

    def variable_ids(self) -> list[int]:
        """Return the identifiers of the stream's variables."""
        found = [
            int(each["variable_id"])
            for each in self.grid.survey()["publications"]
            if each["publisher"] == self.grid.plan.full_name(PUBLISHER)
        ]
        if len(found) != self._plan.variables:
            raise LabError(f"{len(found)} of {self._plan.variables} variables are published")
        return found

    def hops(self, *ways: tuple[str, str], seconds: float = RECORD_S) -> list[Hop]:
        """Record at the sending ends of these ways; return the channels of the events there."""
        for near in dict.fromkeys(near for near, _ in ways):
            self.attacker(near).begin("record", seconds=seconds)
        for near in dict.fromkeys(near for near, _ in ways):
            self.attacker(near).finish()
        return [self._hop(near, far) for near, far in ways]

    def _hop(self, near: str, far: str) -> Hop:
        host = self.grid.namespaces[far].host
        found = [
            each
            for each in self.attacker(near).ask("channels")["channels"]
            if each["host"] == host and each["port"] not in {URGENT_PORT}
        ]
        if len(found) != 1:
            raise LabError(f"{len(found)} channels lead from {near} to {far}: {found}")
        return Hop(near, host, found[0]["port"], Heading(*found[0]["heading"]))

    def judged(self, from_ns: int, until_ns: int | None = None) -> Verdict:
        """Return the verdict on all events from then until now, or until another time, once they
        had time to arrive."""
        window = Window(from_ns, time.time_ns() if until_ns is None else until_ns)
        deadline_s = time.monotonic() + SETTLE_S
        while not (verdict := self.load.judge(window)).is_clean:
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.05)
        self.load.forget_before(from_ns)
        return verdict

    def await_whole(self, *, within_s: float = 60.0) -> None:
        """Wait until every router, channel and way is good."""
        self.grid.wait_for(
            lambda: self.grid.complaint_of_state() or self.load.complaint(), within_s=within_s
        )

    def source(self, router: str, channel_id: int) -> dict[str, int]:
        """Return what a router counts about an incoming channel."""
        text = self.attacker(router).ask("metrics", port=METRICS_PORT)["text"]
        return dict(_of_channel(text, "source", channel_id))

    def sent(self, hop: Hop) -> int:
        """Return the datagrams that the router at the beginning of a channel has sent on it."""
        text = self.attacker(hop.at).ask("metrics", port=METRICS_PORT)["text"]
        return dict(_of_channel(text, "channel", hop.channel_id))["sent_datagrams"]

    def rejected(self, router: str) -> dict[str, int]:
        """Return the datagrams that a router did not believe, by reason."""
        text = self.attacker(router).ask("metrics", port=METRICS_PORT)["text"]
        name = "gridstat_router_rejected_datagrams_total"
        found = re.findall(rf'^{name}\{{reason="(\w+)"\}} (\S+)', text, re.MULTILINE)
        malformed = {name: count for name, count in _events(text) if name.startswith("malformed")}
        return {reason: int(float(value)) for reason, value in found} | malformed

    def kernel_dropped(self, router: str) -> int:
        """Return the datagrams that came too fast for a router's socket."""
        text = self.attacker(router).ask("metrics", port=METRICS_PORT)["text"]
        pattern = r"^gridstat_router_kernel_dropped_messages_total (\S+)"
        return sum(int(float(value)) for value in re.findall(pattern, text, re.MULTILINE))

    def events(self, router: str) -> dict[str, int]:
        """Return what became of the events that came to a router, by outcome."""
        text = self.attacker(router).ask("metrics", port=METRICS_PORT)["text"]
        return dict(_events(text))


def _events(text: str) -> Iterator[tuple[str, int]]:
    for name, value in re.findall(r'gridstat_router_events_total\{outcome="(\w+)"\} (\S+)', text):
        yield name, int(float(value))


class ChannelWatch:
    """State of a channel at its receiving router before an attack, which must not change it."""

    def __init__(self, attacked: AttackedGrid, hop: Hop, router: str) -> None:
        self._attacked, self._hop, self._router = attacked, hop, router
        self._sent = attacked.sent(hop)
        self._before = attacked.source(router, hop.channel_id)

    def complaint(self) -> str | None:
        """Return how the receiver's figures moved; None if only the true sender moved them."""
        after = self._attacked.source(self._router, self._hop.channel_id)
        received = after["received_datagrams"] - self._before["received_datagrams"]
        sent = self._attacked.sent(self._hop) - self._sent
        if received > sent:
            return f"{self._router} counts {received} datagrams of {sent} that were sent"
        for name in ("lost_datagrams", "reordered_datagrams"):
            if after[name] != self._before[name]:
                return f"{self._router} counts {after[name]} {name}, not {self._before[name]}"
        return None


def _of_channel(text: str, side: str, channel_id: int) -> Iterator[tuple[str, int]]:
    """Yield the counters of one incoming (`source`) or outgoing channel in a router's metrics."""
    pattern = rf"^gridstat_router_{side}_(\w+?)(?:_total)?\{{([^}}]*)\}} (\S+)$"
    for name, labels, value in re.findall(pattern, text, re.MULTILINE):
        if f'channel="{channel_id}"' in labels:
            yield name, int(float(value))


__all__ = ["DATA_PORT", "URGENT_PORT", "AttackedGrid", "ChannelWatch", "Hop", "attacked_plan"]
