"""The law of liveness probes: how often a channel is probed, what that costs, and when it is dead.

A probe is sent when nothing else has left the channel for an interval. The interval is the shortest
one that the operator allows (25 ms unless set), or the time in which 1 % of the channel's bandwidth
carries one probe, whichever is longer. A channel is dead after four intervals of silence, so three
probes in a row may be lost. All amounts are exact, and an interval is rounded up to a whole
millisecond, so probes never cost more than is charged for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

PROBE_BYTES: Final = 60
"""Bytes of a sealed probe as a channel's bandwidth counts them, with the headers of IPv4 and UDP:
20 + 8, then a datagram's header of 16 and a seal of 16. A probe without a seal takes 44 of them."""
PROBE_BYTES_IPV6: Final = 80
"""The same with a header of IPv6, which has 40 bytes."""
PROBE_SHARE: Final = 100
"""Probes take one part in so many of a channel's bandwidth: 1 %."""
INTERVALS_PER_SILENCE: Final = 4
INTERVAL_MS_MIN: Final = 25
"""The shortest interval, unless the operator sets another one."""
INTERVAL_MS_MAX: Final = 60_000
"""The longest interval that a router takes. Only a channel below 100 bytes/s (by IPv6 below 134)
would need a longer one for its 1 %; such a channel is charged for a probe a minute, which is
more."""
MS_PER_S: Final = 1_000


def probe_bytes(*, is_ipv6: bool) -> int:
    """Return the bytes of a sealed probe on the line."""
    return PROBE_BYTES_IPV6 if is_ipv6 else PROBE_BYTES


def probe_interval_ms(
    bandwidth_bytes_per_s: int, interval_ms_min: int = INTERVAL_MS_MIN, *, is_ipv6: bool = False
) -> int:
    """Return the interval of probes on a channel; bandwidth 0 means undeclared."""
    if bandwidth_bytes_per_s <= 0:
        return interval_ms_min
    one_percent = probe_bytes(is_ipv6=is_ipv6) * PROBE_SHARE * MS_PER_S
    affordable_ms = -(-one_percent // bandwidth_bytes_per_s)
    return max(interval_ms_min, min(affordable_ms, INTERVAL_MS_MAX))


def silence_limit_ms(interval_ms: int) -> int:
    """Return the silence after which a channel with this probe interval counts as dead."""
    return INTERVALS_PER_SILENCE * interval_ms


def probe_bytes_per_s(interval_ms: int, *, is_ipv6: bool = False) -> Fraction:
    """Return the maximum bytes a second of probes at this interval."""
    return Fraction(probe_bytes(is_ipv6=is_ipv6) * MS_PER_S, interval_ms)


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Shortest interval and silence limit for all channels of a cloud, set by the operator.

    A channel whose bandwidth needs a longer interval has a longer one, and a longer limit. Whether
    a channel uses IPv6 is a fact of its receiver's address.
    """

    interval_ms: int = INTERVAL_MS_MIN
    silent_ms_max: int = silence_limit_ms(INTERVAL_MS_MIN)

    def interval_ms_of(self, bandwidth_bytes_per_s: int, *, is_ipv6: bool = False) -> int:
        """Return the interval of a channel of this bandwidth."""
        return probe_interval_ms(bandwidth_bytes_per_s, self.interval_ms, is_ipv6=is_ipv6)

    def silent_ms_max_of(self, bandwidth_bytes_per_s: int, *, is_ipv6: bool = False) -> int:
        """Return the silence limit of a channel of this bandwidth."""
        interval_ms = self.interval_ms_of(bandwidth_bytes_per_s, is_ipv6=is_ipv6)
        return max(self.silent_ms_max, silence_limit_ms(interval_ms))

    def bytes_per_s_of(self, bandwidth_bytes_per_s: int, *, is_ipv6: bool = False) -> Fraction:
        """Return the bytes a second charged for probes on a channel of this bandwidth."""
        interval_ms = self.interval_ms_of(bandwidth_bytes_per_s, is_ipv6=is_ipv6)
        return probe_bytes_per_s(interval_ms, is_ipv6=is_ipv6)

    def between_clouds(self) -> ProbeSettings:
        """Return the settings between clouds: no faster than the owner of a channel has charged."""
        return ProbeSettings(max(self.interval_ms, INTERVAL_MS_MIN), self.silent_ms_max)


PROBES_DEFAULT: Final = ProbeSettings()
