"""Subscribers of a run: receivers that count into shared memory or keep samples for latencies."""

from __future__ import annotations

import mmap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from benchmarks.plan import PAGE_BYTES, SubscriberPlan
from benchmarks.roles import table
from benchmarks.roles.conversation import step_back
from benchmarks.samples import keep_samples
from benchmarks.sealed_channels import backend_of, key_of
from benchmarks.statistics import NS_PER_S, WARM_UP_S, bins_of, counted, summary_of
from gridstat.core._ends import Receiver
from gridstat.core.scheduling import END_POINT_PRIORITY, in_real_time

if TYPE_CHECKING:
    from benchmarks.roles.conversation import Answer, Question


class SubscriberRole:
    """Owner of the receivers; receiver i counts into bytes i * 4,096 and up of the page file."""

    def __init__(self, plan: SubscriberPlan) -> None:
        self._plan = plan
        if plan.is_background:
            step_back()
        with Path(plan.page_path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), plan.receivers * PAGE_BYTES)
        self._pages = [
            memoryview(self._map)[index * PAGE_BYTES : (index + 1) * PAGE_BYTES]
            for index in range(plan.receivers)
        ]
        self._receivers = [self._open(index) for index in range(plan.receivers)]

    @classmethod
    def from_json(cls, plan: Question) -> Self:
        return cls(SubscriberPlan.from_json(plan))

    def ready(self) -> Answer:
        return {"ports": [list(receiver.ports) for receiver in self._receivers]}

    def answer(self, question: Question) -> Answer:
        match question:
            case {"do": "take", "receiver": int(index)}:
                return self._take(index, question)
            case _:
                return {"counters": [receiver.counters() for receiver in self._receivers]}

    def close(self) -> None:
        for receiver in self._receivers:
            receiver.stop()
            receiver.close()

    def _open(self, index: int) -> Receiver:
        receiver = Receiver(
            host=self._plan.host,
            keep=self._plan.keep[index],
            ring_events=self._plan.ring_events,
            page=self._pages[index],
            seal_backend=backend_of(self._plan.seal),
        )
        if self._plan.seal:
            channel_id = self._plan.channels[index]
            receiver.open_source(channel_id, is_sealed=True)
            receiver.set_keys(channel_id, [key_of(channel_id)])
        for group in self._plan.groups:
            period = table.period_of(group)
            for offset in range(group.count):
                phase_ns = offset * group.phase_step_ns
                receiver.expect(group.first_id + offset, period, phase_ns=phase_ns)
        with in_real_time(None if self._plan.is_real_time else 0, END_POINT_PRIORITY):
            receiver.start()
        return receiver

    def _take(self, index: int, question: Question) -> Answer:
        """Empty the ring and return the latencies of the wanted variables, without the warm-up."""
        samples = self._receivers[index].read(events_max=self._plan.ring_events, timeout_s=0)
        first_id = int(question.get("first_id", 0))
        last_id = first_id + int(question.get("count", 2**32))
        wanted = samples[(samples["variable_id"] >= first_id) & (samples["variable_id"] < last_id)]
        wanted = wanted[np.argsort(wanted["created_ns"], kind="stable")]
        created_ns = wanted["created_ns"].astype(np.int64)
        latencies_ns = wanted["received_ns"].astype(np.int64) - created_ns
        places = counted(
            created_ns,
            warm_up_s=float(question.get("warm_up_s", WARM_UP_S)),
            windows_ns=question.get("windows_ns", ()),
        )
        kept = latencies_ns[places]
        keep_samples(question, created_ns[places], kept)
        width_us = float(question.get("bin_us", 100.0))
        return {
            "taken": len(latencies_ns),
            "cut": len(latencies_ns) - len(kept),
            "seconds": float(created_ns[-1] - created_ns[0]) / NS_PER_S if len(created_ns) else 0.0,
            "summary": asdict(summary_of(kept)),
            "bins": [asdict(part) for part in bins_of(kept, width_us=width_us)],
        }
