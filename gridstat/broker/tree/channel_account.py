"""Account of one channel between clouds, at the broker that owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.shared_stream_costs import SharedHopAccount
from gridstat.model.qos import BASELINE_MODE

if TYPE_CHECKING:
    from gridstat.model.cloud import EventChannel


class ChannelAccount:
    """One channel: its charges, the latency that contracts rely on, and the state of its ends."""

    __slots__ = ("carriage", "down_at", "is_back_pressured", "relied_us")

    def __init__(self, channel: EventChannel) -> None:
        self.carriage = SharedHopAccount(channel)
        self.relied_us: dict[int, int] = {}
        self.down_at: set[str] = set()
        self.is_back_pressured = False

    @property
    def channel(self) -> EventChannel:
        assert self.carriage.channel is not None
        return self.carriage.channel

    @property
    def is_usable(self) -> bool:
        return not self.down_at and not self.is_back_pressured

    def free_bytes_per_s(self) -> dict[int, int] | None:
        """Return the free bandwidth in each mode; None if no bandwidth is declared."""
        bandwidth = self.channel.bandwidth_bytes_per_s
        if not bandwidth:
            return None
        promisable = bandwidth - self.carriage.probe_charge.value
        always = self.carriage.bytes.of_mode(BASELINE_MODE)
        modes = self.carriage.bytes.modes()
        free: dict[int, int] = {BASELINE_MODE: max(0, int(promisable - self.carriage.bytes.value))}
        for mode in modes - {BASELINE_MODE}:
            free[mode] = max(0, int(promisable - always - self.carriage.bytes.of_mode(mode)))
        return free
