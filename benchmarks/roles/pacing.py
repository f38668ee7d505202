"""Schedules of a publisher: the closed loop, the steady tick, and the sources' load generator.

Each loop takes its action as a callable and its clock as an argument, so that the arithmetic of the
load generator (S0 §8.1, Function 8.1) can be tested in virtual time.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

STALL_S = 0.5
WAIT_S_MIN, WAIT_S_MAX = 25e-6, 1e-3


class Clock(Protocol):
    """Clock in seconds that can wait."""

    def now_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The machine's own monotonic clock."""

    def now_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Flood:
    """Result of a closed loop."""

    sent: int
    lost: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ticked:
    """Result of a steady tick; longer than requested if the sender could not keep up."""

    sent: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadRun:
    """Result of the load generator; `publish_s` is the time spent in publishing alone."""

    sent: int
    cycles: int
    publish_s: float
    seconds: float


def flood(
    send: Callable[[int], int],
    delivered: Callable[[], int],
    *,
    seconds: float,
    in_flight_max: int,
    chunk_max: int,
    is_spinning: bool = False,
) -> Flood:
    """Keep at most `in_flight_max` events in flight; continue when half of them have arrived.

    `send(n)` sends up to n events and returns how many; `delivered()` counts arrivals. Events that
    are outstanding for half a second without an arrival are lost; the loop counts them and goes on.
    A spinning loop yields instead of sleeping: for a background process that must never be late.
    """
    started_s = time.monotonic()
    base, sent, lost = delivered(), 0, 0
    while time.monotonic() - started_s < seconds:
        room = in_flight_max - (sent - lost - (delivered() - base))
        if room < in_flight_max // 2:
            goal = base + sent - lost - in_flight_max // 2
            if not reached(delivered, goal, is_spinning=is_spinning):
                lost = sent - (delivered() - base)
            continue
        sent += send(min(room, chunk_max))
    ended_s = time.monotonic()
    if not reached(delivered, base + sent - lost):
        lost = sent - (delivered() - base)
    return Flood(sent, lost, ended_s - started_s)


def steady(
    send: Callable[[int], int],
    *,
    tick_s: float,
    seconds: float,
    is_aligned: bool = False,
    phase_s: float = 0.0,
) -> Ticked:
    """Call `send(n)`, which returns how many events it sent, at every tick of a schedule.

    Ticks missed by a stall are skipped, never made up for in a burst. n counts the calls;
    aligned ticks lie `phase_s` after whole multiples of `tick_s` of the real-time clock, and n is
    that multiple.
    """
    first = int(time.time() / tick_s) + 1
    wait_s = first * tick_s + phase_s - time.time() if is_aligned else 0.0
    started_s = time.monotonic() + wait_s
    tick, calls, sent = 0, 0, 0
    while tick * tick_s < seconds:
        wait_s = started_s + tick * tick_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        else:
            tick += int(-wait_s / tick_s)
        sent += send(first + tick if is_aligned else calls)
        calls += 1
        tick += 1
    return Ticked(sent, max(time.monotonic() - started_s, seconds))


def is_in_slot(at_s: float, tick: int, tick_s: float) -> bool:
    """Return whether an event of this time belongs to the slot around its tick."""
    return abs(at_s - tick * tick_s) < tick_s / 2


def generate_load(
    publish: Callable[[int], None],
    *,
    variables: int,
    seconds: float,
    clock: Clock,
    sleep_s: float = 1e-3,
    lag_s: float = 0.0,
) -> LoadRun:
    """Publish all variables, with a lag between them, then sleep 1 ms; again (S0 §8.1, S3 §5.1)."""
    assert variables > 0
    started_s = clock.now_s()
    cycles, publish_s = 0, 0.0
    while clock.now_s() - started_s < seconds:
        began_s = clock.now_s()
        for index in range(variables):
            publish(index)
            if lag_s:
                clock.sleep(lag_s)
        publish_s += clock.now_s() - began_s
        cycles += 1
        clock.sleep(sleep_s)
    return LoadRun(cycles * variables, cycles, publish_s, clock.now_s() - started_s)


def reached(
    delivered: Callable[[], int],
    goal: int,
    *,
    is_spinning: bool = False,
    stall_s: float | None = None,
) -> bool:
    """Wait until `goal` has been delivered; give up `stall_s` after the last arrival.

    Each check costs processor time that the hop could use, so the pauses between them grow.
    """
    stall_s = STALL_S if stall_s is None else stall_s
    before, wait_s = delivered(), WAIT_S_MIN
    moved_s = time.monotonic()
    while (now := delivered()) < goal:
        if now != before:
            before, moved_s = now, time.monotonic()
        elif time.monotonic() - moved_s > stall_s:
            return False
        if is_spinning:
            os.sched_yield()
            continue
        time.sleep(wait_s)
        wait_s = min(wait_s * 1.5, WAIT_S_MAX)
    return True
