"""A stranger that floods a known sealed channel with datagrams of a key that is not the channel's.

The datagrams are well formed and have counters that are due, so a router opens each of them. They
are sent one by one, as they come from a network, unless the plan says otherwise.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

import numpy as np

from benchmarks.plan import EVENT_BYTES, FlooderPlan
from benchmarks.sealed_channels import EPOCH, key_of
from gridstat.core._ends import Sender
from gridstat.core.rows import DATAGRAM_VERSION_SEALED

if TYPE_CHECKING:
    from benchmarks.roles.conversation import Answer, Question

BURSTS_PER_S = 1_000
FIRST_COUNTER = 1 << 50
"""Ahead of all counters of the true sender, so that no forged datagram looks replayed."""


class FlooderRole:
    """Floods one port for as long as it is asked to."""

    def __init__(self, plan: FlooderPlan) -> None:
        self._plan = plan

    @classmethod
    def from_json(cls, plan: Question) -> Self:
        return cls(FlooderPlan.from_json(plan))

    def ready(self) -> Answer:
        return {}

    def answer(self, question: Question) -> Answer:
        """Send `per_s` datagrams a second to `port`; a burst that comes late is made up for."""
        port, per_s = int(question["port"]), int(question["per_s"])
        total = round(per_s * float(question["seconds"]))
        sent = 0
        with self._sender(port) as sender:
            ids, values, created_ns, options = self._events(2 * per_s // BURSTS_PER_S)
            began_s = time.monotonic()
            while sent < total:
                due = min(total, round(per_s * (time.monotonic() - began_s)))
                burst = min(due - sent, len(ids))
                if burst <= 0:
                    time.sleep(1 / BURSTS_PER_S)
                    continue
                sender.send_many(
                    ids[:burst],
                    values[:burst],
                    created_ns[:burst],
                    options=None if options is None else options[:burst],
                    events_per_datagram=1,
                )
                sent += burst
            seconds = time.monotonic() - began_s
        return {"sent": sent, "per_s": sent / seconds}

    def close(self) -> None:
        """Hold nothing."""

    def _sender(self, port: int) -> Sender:
        plan = self._plan
        sender = Sender(
            plan.channel_id,
            (plan.host, port, port),
            posix=not plan.is_joined,
            datagram_version=DATAGRAM_VERSION_SEALED,
            counter_start=FIRST_COUNTER,
            is_sealed=True,
            seal_backend=plan.seal,
        )
        _, _, salt = key_of(plan.channel_id)
        sender.set_key(EPOCH, bytes(16), salt)
        return sender

    def _events(
        self, count: int
    ) -> tuple[
        np.typing.NDArray[np.uint32],
        np.typing.NDArray[np.int64],
        np.typing.NDArray[np.uint64],
        np.typing.NDArray[np.uint8] | None,
    ]:
        option_bytes = self._plan.event_bytes - EVENT_BYTES
        return (
            np.ones(count, np.uint32),
            np.zeros(count, np.int64),
            np.full(count, time.time_ns(), np.uint64),
            np.zeros((count, option_bytes), np.uint8) if option_bytes else None,
        )
