"""Channels between clouds at the broker that owns them: capacity charged on each, and its state.

An account is charged like a channel inside a cloud; capacity of the routers at its ends is checked
by the children. Each account counts the latency shares that contracts rely on, so that no later
contract can make an earlier one late.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.capacity.admission import Limit, Obstacle, channel_obstacles, congested
from gridstat.broker.tree.channel_account import ChannelAccount
from gridstat.broker.tree.scope_shares import Charge, ScopeShares
from gridstat.model.errors import LayoutError, LimitReached, NoSuchChannel, StillInUse
from gridstat.model.identifiers import ChannelId
from gridstat.model.latency_model import LATENCY_MODEL_DEFAULT
from gridstat.model.probe_law import PROBES_DEFAULT
from gridstat.model.wire_law import is_ipv6_address
from gridstat.net.command.tree_messages import PREFIX_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.broker.tree.tree_operations import ScopePath
    from gridstat.model.cloud import EventChannel, Way
    from gridstat.model.latency_model import LatencyModel
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.segment_messages import Payer

BETWEEN_CLOUDS: Final = 1 << 31
_PREFIX_SHIFT: Final = 23
CHANNELS_MAX: Final = (1 << _PREFIX_SHIFT) - 1


def channel_number(prefix: int, index: int) -> ChannelId:
    """Return the identifier of the n-th channel of a broker; it differs from all inside clouds."""
    assert 0 <= prefix <= PREFIX_MAX
    assert 1 <= index <= CHANNELS_MAX
    return ChannelId(BETWEEN_CLOUDS | prefix << _PREFIX_SHIFT | index)


NOT_IN_FILE: Final = "(file)"
"""Pseudo end at which a channel is down while it is in use and no longer in the file."""


class Prediction(NamedTuple):
    """Latency of a channel, and the part of it that comes from load and may grow."""

    latency_us: int
    of_load_us: int


class OwnedChannels:
    """Every charge belongs to a holding, or to a plan that is being tried."""

    def __init__(
        self, channels: Iterable[EventChannel], *, model: LatencyModel = LATENCY_MODEL_DEFAULT
    ) -> None:
        self.model = model
        self.ends_us = model.predict(())
        self.accounts: dict[int, ChannelAccount] = {}
        self.shares = ScopeShares(self.accounts)
        self.on: dict[Way, int] = {}
        self.between: dict[tuple[str, str], set[int]] = {}
        """Channels from one router to another one, which differ in name."""
        self.at_router: dict[str, set[int]] = {}
        self.version = 0
        self.layout_version = 0
        self.is_charging = False
        """True while charges are being made; stays True if an exception interrupts that."""
        self._prefix = 0
        self.index_last = 0
        """Highest index that any channel has had; no index is used twice."""
        self.silent_ms_reported: dict[str, int] = {}
        """Shortest silence limit of the cloud of each border router; 0 if unknown."""
        self._plain: tuple[int, frozenset[int]] = (-1, frozenset())
        """Channels that are not sealed, and the version of the layout in which they were found."""
        self._ipv6_routers: set[str] = set()
        """Border routers that receive by IPv6, as reported; nothing is planned to others before."""
        for channel in channels:
            self.add(replace(channel, channel_id=self.next_number()))

    # The channels.

    def next_number(self) -> ChannelId:
        if self.index_last >= CHANNELS_MAX:
            raise LimitReached(f"this broker has had {CHANNELS_MAX} channels, which is the most")
        return channel_number(self._prefix, self.index_last + 1)

    def numbered(self, index: int) -> ChannelId:
        return channel_number(self._prefix, index)

    def add(self, channel: EventChannel) -> None:
        ends = (channel.from_router, channel.to_router)
        if channel.way in self.on or channel.channel_id in self.accounts:
            raise LayoutError(f"channel {channel.label} is there already")
        number = channel.channel_id
        account = self.accounts[number] = ChannelAccount(channel)
        account.carriage.set_ip_version(is_ipv6=self.is_ipv6(channel))
        self.index_last = max(self.index_last, number & CHANNELS_MAX)
        self.on[channel.way] = number
        self.between.setdefault(ends, set()).add(number)
        for router in ends:
            self.at_router.setdefault(router, set()).add(number)
        self.version += 1
        self.layout_version += 1

    def remove(self, channel_id: int) -> EventChannel:
        account = self.account(channel_id)
        channel = account.channel
        if account.carriage.streams:
            raise StillInUse(
                f"channel {channel.label} carries {len(account.carriage.streams)} variables"
            )
        del self.accounts[channel_id], self.on[channel.way]
        ends = (channel.from_router, channel.to_router)
        self.between[ends].discard(channel_id)
        if not self.between[ends]:
            del self.between[ends]
        for router in ends:
            self.at_router[router].discard(channel_id)
            if not self.at_router[router]:
                del self.at_router[router]
        self.version += 1
        self.layout_version += 1
        return channel

    def take_back(self, channel_id: int, index_last: int) -> None:
        """Undo `add` of a channel whose number was never sent to others."""
        self.remove(channel_id)
        self.index_last = index_last

    def clear(self) -> None:
        """Remove all channels, before anything is charged."""
        for number in list(self.accounts):
            self.remove(number)
        self.index_last = 0

    def renumber(self, prefix: int) -> None:
        """Give all channels another prefix, since another broker has the present one.

        Nothing may be charged.
        """
        accounts = list(self.accounts.values())
        self.accounts.clear()
        self.on.clear()
        self.between.clear()
        self.at_router.clear()
        self._prefix = prefix
        for account in accounts:
            number = channel_number(prefix, account.channel.channel_id & CHANNELS_MAX)
            self.add(replace(account.channel, channel_id=number))
            self.accounts[number].down_at |= account.down_at & {NOT_IN_FILE}

    @property
    def prefix(self) -> int:
        """Prefix of all channel numbers; no broker above or below has the same."""
        return self._prefix

    def account(self, channel_id: int) -> ChannelAccount:
        try:
            return self.accounts[channel_id]
        except KeyError:
            raise NoSuchChannel(f"there is no channel {channel_id}") from None

    def plain_channels(self) -> frozenset[int]:
        """Return the channels that are not sealed."""
        if self._plain[0] != self.layout_version:
            found = frozenset(
                number for number, each in self.accounts.items() if not each.channel.is_sealed
            )
            self._plain = (self.layout_version, found)
        return self._plain[1]

    def back_channel(self, channel: EventChannel) -> int:
        return self.on.get(channel.back_way, 0)

    # Reports of their ends.

    def mark(self, channel_id: int, end: str, *, is_up: bool) -> bool:
        """Record that one end reports the channel up or down; return whether this changes it."""
        account = self.accounts[channel_id]
        was_down = bool(account.down_at)
        if is_up:
            account.down_at.discard(end)
        else:
            account.down_at.add(end)
        return self._changed(is_changed=bool(account.down_at) != was_down)

    def set_ip_version(self, router: str, *, is_ipv6: bool) -> None:
        """Charge channels to a router by the headers of its address; existing charges stay."""
        if is_ipv6:
            self._ipv6_routers.add(router)
        else:
            self._ipv6_routers.discard(router)
        for number in self.at_router.get(router, ()):
            account = self.accounts[number]
            carriage = account.carriage
            is_changed = carriage.set_ip_version(is_ipv6=self.is_ipv6(account.channel))
            if account.channel.to_router == router and is_changed:
                carriage.latency_us = carriage.predicted_us(self.model)

    def is_ipv6(self, channel: EventChannel) -> bool:
        """Return whether a channel leads to an address of IPv6, as far as it is known."""
        if channel.to_host:
            return is_ipv6_address(channel.to_host)
        return self.receives_by_ipv6(channel.to_router)

    def receives_by_ipv6(self, router: str) -> bool:
        """Return whether a border router has reported an address of IPv6."""
        return router in self._ipv6_routers

    def set_back_pressure(self, channel_id: int, *, is_back_pressured: bool) -> bool:
        """Record back-pressure; return whether this changes if the channel is usable."""
        account = self.accounts[channel_id]
        was_usable = account.is_usable
        account.is_back_pressured = is_back_pressured
        return self._changed(is_changed=account.is_usable != was_usable)

    def _changed(self, *, is_changed: bool) -> bool:
        self.version += is_changed
        return is_changed

    # Charges.

    def charge(
        self,
        variable: StatusVariable,
        everys: Mapping[int, int],
        paths: Iterable[ScopePath],
        payers: tuple[Payer, ...] = (),
    ) -> None:
        self.is_charging = True
        paths = tuple(paths)
        self.shares.add(Charge(variable, everys, paths, payers))
        for path in paths:
            for number, share_us in zip(path.channel_ids, path.shares_us, strict=True):
                account = self.accounts[number]
                if account.carriage.take(variable, everys):
                    account.carriage.latency_us = account.carriage.predicted_us(self.model)
                account.relied_us[share_us] = account.relied_us.get(share_us, 0) + 1
        self.is_charging = False

    def uncharge(
        self,
        variable: StatusVariable,
        everys: Mapping[int, int],
        paths: Iterable[ScopePath],
        payers: tuple[Payer, ...] = (),
    ) -> None:
        """Undo `charge` with the same arguments."""
        self.is_charging = True
        paths = tuple(paths)
        self.shares.remove(Charge(variable, everys, paths, payers))
        for path in paths:
            for number, share_us in zip(path.channel_ids, path.shares_us, strict=True):
                account = self.accounts[number]
                if account.carriage.give_back(variable, everys):
                    account.carriage.latency_us = account.carriage.predicted_us(self.model)
                account.relied_us[share_us] -= 1
                if not account.relied_us[share_us]:
                    del account.relied_us[share_us]
        self.is_charging = False

    def obstacles(self, channel_ids: Iterable[int], *, is_replay: bool = False) -> list[Obstacle]:
        """Return the limits that the present charges exceed: bandwidth, queue, promised latency."""
        if is_replay:
            return []  # Replay is best effort: nothing is promised to it.
        found: list[Obstacle] = []
        for number in channel_ids:
            account = self.accounts[number]
            found.extend(channel_obstacles(account.carriage, number))
            missing_us = account.carriage.latency_us - min(account.relied_us, default=0)
            if account.relied_us and missing_us > 0:
                label = account.channel.label
                text = f"more load on channel {label} would make a contract late by {missing_us} µs"
                found.append(
                    Obstacle(Limit.BURST, number, f"channel {label}", missing_us, "µs", text)
                )
        return found

    def congested(self) -> list[Obstacle]:
        """Return the back-pressured channels; a channel that is down is no obstacle to a flood."""
        return [
            congested(account.channel.label, number)
            for number, account in sorted(self.accounts.items())
            if account.is_back_pressured and not account.down_at
        ]

    def predictions(
        self, variable: StatusVariable, everys: Mapping[int, int], channel_ids: Iterable[int]
    ) -> dict[int, Prediction]:
        """Return the latency that these channels would have with the variable on them."""
        found = {}
        self.is_charging = True
        for number in channel_ids:
            account = self.accounts[number]
            carriage = account.carriage
            is_changed = carriage.take(variable, everys)
            latency_us = carriage.predicted_us(self.model) if is_changed else carriage.latency_us
            carriage.give_back(variable, everys)
            found[number] = Prediction(latency_us, latency_us - account.channel.latency_us)
        self.is_charging = False
        return found

    def detection_ms(self, channel_id: int) -> int | None:
        """Return the silence after which the channel counts as dead; None if an end is unknown."""
        channel = self.accounts[channel_id].channel
        ends = (channel.from_router, channel.to_router)
        reported = [self.silent_ms_reported.get(end, 0) for end in ends]
        if 0 in reported:
            return None
        return max(self.silent_ms_min(channel_id), *reported)

    def silent_ms_min(self, channel_id: int) -> int:
        """Return the shortest silence limit that the channel's bandwidth allows."""
        account = self.accounts[channel_id]
        return PROBES_DEFAULT.silent_ms_max_of(
            account.channel.bandwidth_bytes_per_s, is_ipv6=account.carriage.is_ipv6
        )

    def latency_us(self, channel_id: int) -> int:
        return self.accounts[channel_id].carriage.latency_us
