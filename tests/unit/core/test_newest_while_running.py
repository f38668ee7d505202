"""The newest event read by Python while the forwarding thread writes it: whole, and never older."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from gridstat.core import _core
from tests.unit.core.running import eventually, hop

OPTIONS = 20
ROUNDS = 3_000


def test_the_newest_event_is_never_seen_in_halves_and_never_goes_back() -> None:
    with hop() as made, made.sender() as sender:
        made.core.commit([replace(made.row(1), keeps_newest=True)])
        made.core.start()
        newest = 0
        for number in range(1, ROUNDS):
            options = np.full((1, 24 * OPTIONS), number % 251, np.uint8)
            sender.send_many(
                np.array([1]), np.array([number]), np.array([number * 1_000]), options=options
            )
            raw = made.core.newest(1)
            if raw is None:
                continue
            value = struct.unpack_from(">q", raw, 16)[0]
            assert raw[24:] == bytes([value % 251]) * (24 * OPTIONS)
            assert value >= newest
            newest = value

        def complaint() -> str | None:
            found = made.core.newest(1)
            value = struct.unpack_from(">q", found, 16)[0] if found else 0
            return None if value == ROUNDS - 1 else f"the newest is {value}"

        eventually(complaint)


def test_keeping_events_allocates_nothing_on_their_way() -> None:
    with hop() as made, made.sender() as sender:
        made.core.commit([replace(made.row(v), keeps_newest=True) for v in range(50)])
        made.core.start()
        before = _core.allocations()
        for number in range(100):
            for variable_id in range(50):
                sender.send(variable_id, number, created_ns=(number + 1) * 1_000)
        eventually(made.settled(5_000))
        assert _core.allocations() == before
        assert all(made.core.newest(v) is not None for v in range(50))
