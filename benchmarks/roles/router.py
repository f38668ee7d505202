"""A status router around the compiled core, as its own process."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np

from benchmarks.plan import RouterPlan
from benchmarks.roles import table
from benchmarks.sealed_channels import backend_of
from gridstat.core._core import Core
from gridstat.core.rows import Row, Term

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.roles.conversation import Answer, Question

REDUNDANT = Term(2)
"""Redundant term: beside every = 1 it adds nothing, so no event is lost with it."""


class RouterRole:
    """Owner of one started core; the forwarding itself runs in the core's thread."""

    def __init__(self, plan: RouterPlan) -> None:
        self._plan = plan
        self._core = Core(table.limits_for(plan), seal_backend=backend_of(plan.seal))
        self._ports = self._core.listen(plan.host)
        table.load(self._core, plan)
        if plan.seal:
            table.load_keys(self._core, plan)
        self._core.start(fifo_priority=plan.fifo_priority)

    @classmethod
    def from_json(cls, plan: Question) -> Self:
        return cls(RouterPlan.from_json(plan))

    def ready(self) -> Answer:
        return {"ports": list(self._ports)}

    def answer(self, question: Question) -> Answer:
        match question:
            case {"do": "change"}:
                return self._change(int(question["changes"]), float(question["per_s"]))
            case _:
                return self._state()

    def close(self) -> None:
        self._core.stop()
        self._core.close()

    def _state(self) -> Answer:
        channels = {
            str(outlet.channel_id): self._core.channel_counters(outlet.channel_id)
            for outlet in self._plan.outlets
        }
        return {
            "counters": self._core.counters(),
            "channels": channels,
            "histogram": self._core.latency_histogram(),
        }

    def _change(self, changes: int, per_s: float) -> Answer:
        """Commit one row at a time; `per_s` 0 means one after the other.

        Even changes touch the first group, which carries the load, without an effect; odd ones
        remove the routes of the last group's rows and add them again.
        """
        versions = _versions(self._plan)
        is_routed = {row.variable_id: True for row in table.rows_of(self._plan.groups[-1])}
        took_ns = np.zeros(changes, np.int64)
        started_s = time.monotonic()
        for index in range(changes):
            if per_s:
                time.sleep(max(0.0, started_s + index / per_s - time.monotonic()))
            row = next(versions)
            before_ns = time.perf_counter_ns()
            self._core.commit([row])
            took_ns[index] = time.perf_counter_ns() - before_ns
            if row.variable_id in is_routed:
                is_routed[row.variable_id] = bool(row.routes)
        p50, p99, worst = np.quantile(took_ns, (0.5, 0.99, 1.0)) / 1e6
        return {
            "changes": changes,
            "seconds": time.monotonic() - started_s,
            "p50_ms": float(p50),
            "p99_ms": float(p99),
            "max_ms": float(worst),
            "routed": sum(is_routed.values()),
        }


def _versions(plan: RouterPlan) -> Iterator[Row]:
    """Yield rows to commit, for ever: each round of a group flips all its rows once."""
    loaded = list(table.rows_of(plan.groups[0]))
    toggled = list(table.rows_of(plan.groups[-1]))
    is_plain = True
    while True:
        for index, row in enumerate(loaded):
            routes = tuple(
                replace(route, terms=(*route.terms, REDUNDANT) if is_plain else route.terms)
                for route in row.routes
            )
            yield replace(row, routes=routes)
            other = toggled[index % len(toggled)]
            yield replace(other, routes=() if (index // len(toggled)) % 2 == 0 else other.routes)
        is_plain = not is_plain
