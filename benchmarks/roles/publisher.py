"""Publishers of a run: senders driven by a closed loop, a tick, or the load generator."""

from __future__ import annotations

import array
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from benchmarks.plan import EVENT_BYTES, MTU_BYTES, PublisherPlan
from benchmarks.roles.conversation import step_back
from benchmarks.roles.pacing import Ticked, WallClock, flood, generate_load, steady
from benchmarks.roles.streams import Chunk, EventStream
from benchmarks.sealed_channels import key_of
from benchmarks.shared_page import SharedPages
from benchmarks.statistics import published_events_per_ms
from gridstat.core._ends import Sender
from gridstat.core.rows import DATAGRAM_VERSION_SEALED
from gridstat.core.scheduling import END_POINT_PRIORITY, in_real_time

if TYPE_CHECKING:
    from benchmarks.roles.conversation import Answer, Question

NS_PER_MS = 1_000_000


class PublisherRole:
    """Owner of the senders; one command at a time runs to its end and is answered with counts."""

    def __init__(self, plan: PublisherPlan) -> None:
        if plan.is_background:
            step_back()
        address = (plan.host, plan.data_port, plan.urgent_port)
        self._senders = [
            _sender(plan.first_channel + index, address, plan.seal) for index in range(plan.senders)
        ]
        has_page = bool(plan.page_path)
        self._pages = SharedPages(Path(plan.page_path), plan.receivers) if has_page else None
        self._streams: dict[tuple[int, int, int], EventStream] = {}

    @classmethod
    def from_json(cls, plan: Question) -> Self:
        return cls(PublisherPlan.from_json(plan))

    def ready(self) -> Answer:
        return {"senders": len(self._senders)}

    def answer(self, question: Question) -> Answer:
        match question["do"]:
            case "flood":
                return self._flood(question)
            case "burst":
                return asdict(self._steady_burst(question))
            case "single":
                return asdict(self._steady_single(question))
            case "probe":
                return asdict(self._probe(question))
            case "load":
                return self._load(question)
            case unknown:
                raise ValueError(unknown)

    def close(self) -> None:
        for sender in self._senders:
            sender.close()

    def _flood(self, question: Question) -> Answer:
        """Run the closed loop through the first sender; `per_datagram` 0 packs to the MTU."""
        assert self._pages is not None
        chunk_max = int(question["chunk_max"])
        per_datagram = int(question["per_datagram"])
        stream = self._stream(question, chunk_max)

        def send(events: int) -> int:
            chunk = stream.take_since_last(events)
            return self._send_chunk(chunk, per_datagram=per_datagram)

        ran = flood(
            send,
            self._pages.delivered_least,
            seconds=float(question["seconds"]),
            in_flight_max=int(question["in_flight_max"]),
            chunk_max=chunk_max,
            is_spinning=bool(question.get("is_spinning", False)),
        )
        return asdict(ran)

    def _steady_burst(self, question: Question) -> Ticked:
        """Send `per_tick` events at each tick in one `send_many`, one event a datagram."""
        per_tick = int(question["per_tick"])
        stream = self._stream(question, per_tick)

        def send(_tick: int) -> int:
            return self._send_chunk(stream.take_at_once(per_tick), per_datagram=1)

        return steady(send, tick_s=float(question["tick_s"]), seconds=float(question["seconds"]))

    def _steady_single(self, question: Question) -> Ticked:
        """Send `per_tick` separate events at each tick, each variable from its own sender."""
        first_id, count = int(question["first_id"]), int(question["count"])
        per_tick, urgent = int(question["per_tick"]), bool(question.get("urgent", False))
        value = bytes(int(question["event_bytes"]) - EVENT_BYTES + 8)
        senders = self._senders

        def send(tick: int) -> int:
            for step in range(tick * per_tick, (tick + 1) * per_tick):
                index = step % count
                senders[index % len(senders)].send(first_id + index, value, urgent=urgent)
            return per_tick

        priority_wanted = None if question.get("is_real_time", False) else 0
        with in_real_time(priority_wanted, END_POINT_PRIORITY):
            return steady(
                send,
                tick_s=float(question["tick_s"]),
                seconds=float(question["seconds"]),
                is_aligned=bool(question.get("is_aligned", False)),
                phase_s=float(question.get("phase_s", 0.0)),
            )

    def _probe(self, question: Question) -> Ticked:
        """Send slow events at even ticks by the first sender, alerts at odd ones by the second."""
        slow_id, slow_count = int(question["slow_first_id"]), int(question["slow_count"])
        alert_id, alert_count = int(question["alert_first_id"]), int(question["alert_count"])
        slow_sender, alert_sender = self._senders

        def send(tick: int) -> int:
            # Ticks are numbered by the real-time clock, so each slow variable keeps its phase.
            pair = tick // 2
            if tick % 2 == 0:
                return int(slow_sender.send(slow_id + pair % slow_count, pair))
            return int(alert_sender.send(alert_id + pair % alert_count, pair, urgent=True))

        tick_s, seconds = float(question["tick_s"]), float(question["seconds"])
        return steady(send, tick_s=tick_s, seconds=seconds, is_aligned=True)

    def _load(self, question: Question) -> Answer:
        """Run the sources' generator; also count the events that a half-rate subscription sees."""
        first_id, variables = int(question["first_id"]), int(question["count"])
        stamps = array.array("Q")
        sender, value = self._senders[0], 0

        def publish(index: int) -> None:
            created_ns = time.time_ns()
            sender.send(first_id + index, value, created_ns=created_ns)
            stamps.append(created_ns)

        ran = generate_load(
            publish,
            variables=variables,
            seconds=float(question["seconds"]),
            clock=WallClock(),
            lag_s=float(question.get("lag_s", 0.0)),
        )
        slots = (np.frombuffer(stamps, np.uint64) + NS_PER_MS // 2) // NS_PER_MS
        publish_ms = 1e3 * ran.publish_s / ran.cycles
        return {
            **asdict(ran),
            "even_slots": int((slots % 2 == 0).sum()),
            "events_per_ms": ran.sent / (ran.seconds * 1e3),
            "events_per_ms_predicted": published_events_per_ms(variables, publish_ms),
        }

    def _send_chunk(self, chunk: Chunk, *, per_datagram: int) -> int:
        return self._senders[0].send_many(
            chunk.ids,
            chunk.values,
            chunk.created_ns,
            options=chunk.options,
            events_per_datagram=per_datagram,
        )

    def _stream(self, question: Question, chunk_max: int) -> EventStream:
        first_id, count = int(question["first_id"]), int(question["count"])
        key = (first_id, count, chunk_max)
        if key not in self._streams:
            self._streams[key] = EventStream(
                first_id,
                count,
                event_bytes=int(question["event_bytes"]),
                chunk_max=chunk_max,
                period_ns=int(question["period_ns"]),
            )
        return self._streams[key]


def _sender(channel_id: int, address: tuple[str, int, int], seal: str) -> Sender:
    if not seal:
        return Sender(channel_id, address, mtu_bytes=MTU_BYTES)
    sender = Sender(
        channel_id,
        address,
        mtu_bytes=MTU_BYTES,
        datagram_version=DATAGRAM_VERSION_SEALED,
        is_sealed=True,
        seal_backend=seal,
    )
    sender.set_key(*key_of(channel_id))
    return sender
