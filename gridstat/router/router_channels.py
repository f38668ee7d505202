"""The event channels of one router: opened on command, closed when no row uses them any more.

A channel whose address cannot be reached now is tried again and again (S0 A19): a table is not
refused because a cable is out. Events for it meanwhile have no output, and count as not due. Sealed
channels get their keys, as far as there are any, in the moment in which they open. Those to
end-points open held, from a random counter, until the address is proved (`address_proofs.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.core.rows import ChannelSpec, check_channel
from gridstat.model.channel_security import SEALED_VERSION
from gridstat.model.errors import LayoutError, LinkDown
from gridstat.model.keys.channel_keys import ChannelKeys, KeyCore, SeedInstalled
from gridstat.router.liveness import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from gridstat.net.command.router_messages import ChannelOrder

DATAGRAM_VERSION_PROBES: Final = 2
PROOF_PROBE_MS: Final = 25
"""Interval of probes on a held channel for which none is ordered."""
COUNTER_START_BYTES: Final = 5
"""Bytes of the random number before the first counter of a held channel. Counters of an id only
grow, by this much with each opening, and have room for eight million of them."""
BEGUN_MAX: Final = 65_536
"""Sealed channels of which it is known that this process opened them before."""
FIRST_COUNTER_BYTES: Final = 6
"""Bytes of the random number before the first counter of a sealed channel in this process."""


class ChannelCore(KeyCore, Protocol):
    """Part of the core that channels need."""

    def open_channel(self, spec: ChannelSpec) -> None: ...
    def close_channel(self, channel_id: int) -> dict[str, int]: ...
    def release_channel(self, channel_id: int) -> None: ...
    def hold_channel(self, channel_id: int, *, is_probed: bool) -> None: ...
    def open_source(
        self,
        channel_id: int,
        *,
        is_publisher: bool = False,
        back_channel: int = 0,
        is_sealed: bool = False,
    ) -> None: ...
    def close_source(self, channel_id: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """An incoming channel; a publisher's is policed, and a back channel leads to its sender."""

    channel_id: int
    is_publisher: bool = False
    back_channel: int = 0
    is_sealed: bool = False


class RouterChannels:
    """Commanded channels (`specs`); all are open, except those that wait for their address."""

    def __init__(
        self,
        core: ChannelCore,
        keys: ChannelKeys,
        *,
        clock_ns: Callable[[], int],
        random_bytes: Callable[[int], bytes] = token_bytes,
    ) -> None:
        self._core = core
        self._random_bytes = random_bytes
        self._keys = keys
        self._clock_ns = clock_ns
        self._begun: dict[int, int] = {}
        """Sealed channels that were opened before, with the counter at which they last closed."""
        self._holding: dict[int, bool] = {}
        """Channels that were ordered to be held, and whether they send probes."""
        self._installed: list[SeedInstalled] = []
        self.specs: dict[int, ChannelSpec] = {}
        self.sources: dict[int, Source] = {}
        self._waiting: set[int] = set()
        self._closing: set[int] = set()

    def is_open(self, channel_id: int) -> bool:
        return channel_id in self.specs and channel_id not in self._waiting

    def commanded_ids(self) -> AbstractSet[int]:
        """Return the channels that the table names: all but those about to close."""
        return self.specs.keys() - self._closing

    def open_ids(self) -> list[int]:
        return sorted(self.specs.keys() - self._waiting)

    def waiting_ids(self) -> list[int]:
        """Return the channels that could not be opened yet."""
        return sorted(self._waiting)

    def open(self, spec: ChannelSpec) -> None:
        """Open a channel; reopen it where its address changes."""
        channel_id = spec.channel_id
        self._closing.discard(channel_id)
        if self.specs.get(channel_id) == spec:
            return
        self._close_in_core(channel_id)
        self._holding.pop(channel_id, None)  # The new one begins as its spec says.
        self.specs[channel_id] = spec
        self._waiting.add(channel_id)
        self._try_open(channel_id)

    def close(self, channel_id: int) -> None:
        """Close a channel at once."""
        self._close_in_core(channel_id)
        self.specs.pop(channel_id, None)
        self._holding.pop(channel_id, None)
        self._waiting.discard(channel_id)
        self._closing.discard(channel_id)
        self._keys.channel_closed(channel_id)

    def close_later(self, channel_id: int) -> None:
        """Close a channel once no row uses it."""
        if channel_id in self.specs:
            self._closing.add(channel_id)

    def close_unused(self) -> list[int]:
        """Close the channels that no row uses now; return them."""
        closed = sorted(self._closing)
        for channel_id in closed:
            self.close(channel_id)
        return closed

    def retry(self) -> list[int]:
        """Try to open waiting channels again; return those that are open now."""
        return [channel_id for channel_id in self.waiting_ids() if self._try_open(channel_id)]

    def check_address(self, channel_id: int, counter: int) -> bool:
        """Release a held channel if the counter was sent on it; return whether it was."""
        if not self.is_open(channel_id):
            return False
        state = self._core.sending_state(channel_id)
        is_proved = bool(state["first_counter"] <= counter <= state["newest_counter"])
        if is_proved:
            self._holding.pop(channel_id, None)
            self._core.release_channel(channel_id)
        return is_proved

    def hold(self, channel_id: int, *, is_probed: bool) -> None:
        """Send no events on a channel, and probes only if asked for; one that waits for its
        address is held so when it opens."""
        if channel_id in self.specs:
            self._holding[channel_id] = is_probed
        if self.is_open(channel_id):
            self._core.hold_channel(channel_id, is_probed=is_probed)

    def open_source(self, source: Source) -> None:
        """Accept datagrams of a channel; an open one changes without a gap."""
        if self.sources.get(source.channel_id) == source:
            return
        self._core.open_source(
            source.channel_id,
            is_publisher=source.is_publisher,
            back_channel=source.back_channel,
            is_sealed=source.is_sealed,
        )
        self.sources[source.channel_id] = source
        if source.is_sealed:
            self._installed += self._keys.source_opened(source.channel_id, self._clock_ns())
        else:
            self._keys.source_closed(source.channel_id)

    def take_installed(self) -> list[SeedInstalled]:
        """Return the seeds that were accepted in opened sources since the last call."""
        found, self._installed = self._installed, []
        return found

    def close_source(self, channel_id: int) -> None:
        if self.sources.pop(channel_id, None) is not None:
            self._keys.source_closed(channel_id)
            self._core.close_source(channel_id)

    def _try_open(self, channel_id: int) -> bool:
        try:
            self._core.open_channel(self._begin(self.specs[channel_id]))
        except LinkDown:
            return False
        except BaseException:
            self.specs.pop(channel_id)
            self._waiting.discard(channel_id)
            raise
        self._waiting.discard(channel_id)
        if channel_id in self._holding:
            self._core.hold_channel(channel_id, is_probed=self._holding[channel_id])
        if self.specs[channel_id].is_sealed:
            ended = self._begun.pop(channel_id, None)
            first = self._core.sending_state(channel_id)["first_counter"]
            goes_on = ended is not None and first > ended
            self._begun[channel_id] = first - 1
            if len(self._begun) > BEGUN_MAX:
                del self._begun[next(iter(self._begun))]
            self._keys.channel_opened(channel_id, self._clock_ns(), goes_on=goes_on)
        return True

    def _begin(self, spec: ChannelSpec) -> ChannelSpec:
        """Let a held channel, and a sealed one that this process opens first, begin anywhere.

        The counters of a held channel are known only to who receives its datagrams. A header has
        8 bits of the epoch only, so two processes may use the same ones, with other keys: random
        counters keep their headers apart.
        """
        if spec.is_held:
            size = COUNTER_START_BYTES
        elif spec.is_sealed and spec.channel_id not in self._begun:
            size = FIRST_COUNTER_BYTES
        else:
            return spec
        return replace(spec, counter_start=int.from_bytes(self._random_bytes(size), "big"))

    def _close_in_core(self, channel_id: int) -> None:
        if self.is_open(channel_id):
            self._keys.channel_interrupted(channel_id)
            if channel_id in self._begun:
                self._begun[channel_id] = self._core.sending_state(channel_id)["newest_counter"]
            self._core.close_channel(channel_id)


def spec_of(order: ChannelOrder, *, in_memory: bool = False) -> ChannelSpec:
    """Return the core's spec of a commanded channel; raise `LayoutError` for an impossible one.

    In memory a channel has no address, and the owner of the core carries its datagrams.
    """
    can_probe = order.datagram_version >= DATAGRAM_VERSION_PROBES
    is_held = order.is_endpoint and order.datagram_version == SEALED_VERSION
    interval_ms = order.probe_interval_ms or (PROOF_PROBE_MS if is_held else 0)
    for port in (order.data_port, order.urgent_port):
        if not 0 < port < 2**16:
            raise LayoutError(f"channel {order.channel_id} leads to port {port}")
    spec = ChannelSpec(
        channel_id=order.channel_id,
        level=order.level,
        floods=order.floods,
        mtu_bytes=order.mtu_bytes,
        bandwidth_bytes_per_s=order.bandwidth_bytes_per_s,
        queue_events_max=order.queue_events_max,
        address=None if in_memory else (order.host, order.data_port, order.urgent_port),
        datagram_version=order.datagram_version,
        probe_interval_ns=interval_ms * NS_PER_MS if can_probe else 0,
        probes_only_when_idle=order.probes_only_when_idle,
        is_sealed=order.datagram_version == SEALED_VERSION,
        is_held=is_held,
        probes_only_when_held=is_held and order.probe_interval_ms == 0,
    )
    check_channel(spec)
    return spec
