"""What a PMU would measure: a 60 Hz system in which every 20 s a large generator trips.

After a trip the frequency swings at 0.4 Hz and dies away within seconds; stations swing with
different strength and a little later the further south they lie, and voltages dip with it. All is
a function of time alone, so that each PMU process, restarted or not, tells the same story.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

NOMINAL_HZ: Final = 60.0
NOMINAL_VOLT: Final = 345_000.0 / math.sqrt(3)
TRIP_EVERY_S: Final = 20.0
SWING_HZ: Final = 0.4
SWING_DEPTH_HZ: Final = 0.15
DECAY_S: Final = 3.0
WANDER_HZ: Final = 0.05
WANDER_DEPTH_HZ: Final = 0.01


@dataclass(frozen=True, slots=True)
class Phasor:
    """One measurement of one station."""

    voltage_volt: float
    angle_degrees: float
    frequency_hz: float
    frequency_change_hz_per_s: float

    def quantity(self, name: str) -> float:
        match name:
            case "voltage-magnitude":
                return self.voltage_volt
            case "voltage-angle":
                return self.angle_degrees
            case "frequency":
                return self.frequency_hz
            case "frequency-change":
                return self.frequency_change_hz_per_s
            case _:
                raise AssertionError(f"the settings let the quantity {name} pass")


def phasor_at(time_s: float, *, station: int) -> Phasor:
    """The state at a station; stations are numbered from 0, from north to south."""
    strength = 1.0 - 0.1 * (station % 8)
    since_trip_s = (time_s - 0.05 * station) % TRIP_EVERY_S
    swing = _swing(since_trip_s)
    wander_rad = 2 * math.pi * WANDER_HZ * time_s
    deviation_hz = -strength * swing + WANDER_DEPTH_HZ * math.sin(wander_rad)
    droop = 0.002 * (station % 5)
    return Phasor(
        voltage_volt=NOMINAL_VOLT * (1.0 - droop - 0.1 * strength * abs(swing)),
        angle_degrees=_wrapped(-6.0 * station - 360.0 * strength * _swing_turns(since_trip_s)),
        frequency_hz=NOMINAL_HZ + deviation_hz,
        frequency_change_hz_per_s=-strength * _swing_slope(since_trip_s)
        + WANDER_DEPTH_HZ * 2 * math.pi * WANDER_HZ * math.cos(wander_rad),
    )


def _swing(since_s: float) -> float:
    """How far below nominal the frequency is: a damped sine."""
    swing_rad_per_s = 2 * math.pi * SWING_HZ
    return SWING_DEPTH_HZ * math.exp(-since_s / DECAY_S) * math.sin(swing_rad_per_s * since_s)


def _swing_slope(since_s: float) -> float:
    swing_rad_per_s = 2 * math.pi * SWING_HZ
    return (
        SWING_DEPTH_HZ
        * math.exp(-since_s / DECAY_S)
        * (
            swing_rad_per_s * math.cos(swing_rad_per_s * since_s)
            - math.sin(swing_rad_per_s * since_s) / DECAY_S
        )
    )


def _swing_turns(since_s: float) -> float:
    """The integral of `_swing` from 0: what the swing has turned the angle by, in turns."""
    decay_per_s, swing_rad_per_s = 1 / DECAY_S, 2 * math.pi * SWING_HZ
    fallen = math.exp(-since_s * decay_per_s) * (
        swing_rad_per_s * math.cos(swing_rad_per_s * since_s)
        + decay_per_s * math.sin(swing_rad_per_s * since_s)
    )
    return SWING_DEPTH_HZ * (swing_rad_per_s - fallen) / (swing_rad_per_s**2 + decay_per_s**2)


def _wrapped(degrees: float) -> float:
    return (degrees + 180.0) % 360.0 - 180.0
