"""A status router around the reference core in plain Python, as its own process."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from benchmarks.plan import RouterPlan
from benchmarks.roles import table
from gridstat.core.reference import ReferenceCore

if TYPE_CHECKING:
    from benchmarks.roles.conversation import Answer, Question


class ReferenceRole:
    """Owner of the reference and the one thread that runs it."""

    def __init__(self, plan: RouterPlan) -> None:
        self._plan = plan
        self._core = ReferenceCore(table.limits_for(plan))
        self._ports = self._core.listen(plan.host)
        table.load(self._core, plan)
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reference")
        self._thread.start()

    @classmethod
    def from_json(cls, plan: Question) -> Self:
        return cls(RouterPlan.from_json(plan))

    def ready(self) -> Answer:
        return {"ports": list(self._ports)}

    def answer(self, question: Question) -> Answer:
        del question
        channels = {
            str(outlet.channel_id): self._core.channel_counters(outlet.channel_id)
            for outlet in self._plan.outlets
        }
        return {"counters": self._core.counters(), "channels": channels, "histogram": []}

    def close(self) -> None:
        self._is_ending.set()
        self._thread.join()
        self._core.close()

    def _run(self) -> None:
        self._core.run(self._is_ending.is_set, clock_ns=time.time_ns)
