"""Keys as a capability of a leaf broker: seeds for the channels of its cloud.

The leaf broker gives seeds to the routers at both ends of each sealed channel of its cloud, once
both have a session, then again for each new session and every hour (`model/keys/seed_giver.py`).
For channels between clouds it passes messages on: `BorderSeedWanted` up when a border router has a
new session, `BorderSeed` down, and `BorderSeedAccepted` up. Seeds of end-points' channels are given
by edge routers (`router/endpoint_seeds.py`).

A channel that is to be sealed between routers of which one cannot seal stays closed. Its contracts
are moved away, and the survey says why.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.operations import ChannelAdded, ChannelRemoved
from gridstat.broker.records.parent_operations import BorderOpened
from gridstat.model.channel_security import NONE, SEALED_VERSION
from gridstat.model.keys.seed_giver import End, GiveSeed, SeedGiver
from gridstat.net.command.router_messages import ReportRouter, SeedAccepted, seed_message
from gridstat.net.command.tree_messages import BorderSeed, BorderSeedAccepted, BorderSeedWanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.leaf_capability import Facts
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.broker.tables.channel_plan import ChannelPlan
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.tree_messages import BorderChannel

    Change: TypeAlias = Callable[[], None]

KEYS_TIMER: Final = "keys"


class ClosedChannels(Protocol):
    """Moves contracts away from channels that cannot be opened, and back."""

    def channel_withheld(self, channel_id: int, *, is_open: bool) -> None: ...


class LeafKeys:
    """Gives every sealed channel with two connected ends a seed; `_closed` has the others' reasons.

    A channel is in the giver exactly if it is sealed and both ends can seal.
    """

    def __init__(
        self,
        context: BrokerContext,
        parent: ParentSession,
        channel_plan: ChannelPlan,
        recovery: ClosedChannels,
    ) -> None:
        self._context = context
        self._parent = parent
        self._channel_plan = channel_plan
        self._recovery = recovery
        self._giver = SeedGiver(context.settings.keys, context.outside.random_bytes)
        self._closed: dict[int, str] = {}
        self._overdue: set[int] = set()

    def capability(self) -> LeafCapability:
        return LeafCapability(
            name="keys",
            around={
                ChannelAdded: self._around_added,
                ChannelRemoved: self._around_removed,
                BorderOpened: self._around_border,
            },
            resume=self._resume,
            router_messages={SeedAccepted: self._accepted},
            parent_messages={BorderSeed: self._pass_on},
            timers={KEYS_TIMER: self._step},
            router_reported=self._router_reported,
            router_lost=self._router_lost,
            parent_joined=self._parent_joined,
            survey=self._survey,
        )

    # Channels of the cloud.

    def _resume(self) -> None:
        for channel in list(self._context.registry.channels.values()):
            self._update(channel)
        self._context.set_timer(KEYS_TIMER, self._giver.tick_ns)

    def _around_added(self, operation: ChannelAdded, done: Applied, change: Change) -> None:
        change()
        done.tables.append(partial(self._channel_added, operation.channel.channel_id))

    def _channel_added(self, channel_id: int) -> None:
        channel = self._context.registry.channels.get(channel_id)
        if channel is not None:
            self._update(channel)

    def _around_removed(self, operation: ChannelRemoved, done: Applied, change: Change) -> None:
        done.undo.append(partial(self._channel_kept, operation.channel_id))  # The last to run.
        change()
        done.tables.append(partial(self._forget, operation.channel_id))

    def _channel_kept(self, channel_id: int) -> None:
        """Begin anew with a channel that stays: meanwhile sessions of its ends went unnoticed."""
        channel = self._context.registry.channels.get(channel_id)
        if channel is not None and channel_id in self._giver:
            for end in End:
                self._giver.end_down(channel_id, end)
            self._begin(channel)

    def _forget(self, channel_id: int) -> None:
        if channel_id not in self._context.registry.channels:
            self._giver.close(channel_id)
            self._closed.pop(channel_id, None)
            self._overdue.discard(channel_id)

    def _router_reported(self, name: str, _: ReportRouter, *, is_new: bool) -> None:
        """Begin exchanges for all channels of a router that has a new session."""
        del is_new
        registry = self._context.registry
        for channel_id in sorted(registry.channels_of.get(name, ())):
            channel = registry.channels[channel_id]
            was_served = channel_id in self._giver
            self._update(channel)
            if was_served:
                self._send(self._giver.end_up(channel_id, _end(channel, name), self._now_ns))
        self._want(registry.tree.borders_at(name))

    def _router_lost(self, name: str) -> None:
        registry = self._context.registry
        for channel_id in registry.channels_of.get(name, ()):
            self._giver.end_down(channel_id, _end(registry.channels[channel_id], name))

    def _update(self, channel: EventChannel) -> None:
        """Serve a channel exactly if both ends can seal it; report one that stays closed."""
        channel_id = int(channel.channel_id)
        reason = self._channel_plan.closed_reason(channel)
        if reason and channel_id not in self._closed:
            self._context.warn("channel_stays_closed", channel=channel.label, reason=reason)
        if reason:
            self._closed[channel_id] = reason
            self._recovery.channel_withheld(channel_id, is_open=False)
        elif self._closed.pop(channel_id, None) is not None:
            self._recovery.channel_withheld(channel_id, is_open=True)
        if self._channel_plan.version(channel) != SEALED_VERSION:
            self._giver.close(channel_id)
        elif channel_id not in self._giver:
            self._giver.open(channel_id, self._now_ns)
            self._begin(channel)

    def _begin(self, channel: EventChannel) -> None:
        """Note which ends of a channel have a session already."""
        for end, name in ((End.RECEIVER, channel.to_router), (End.SENDER, channel.from_router)):
            if self._context.tables[name].is_connected:
                self._send(self._giver.end_up(channel.channel_id, end, self._now_ns))

    # Seeds.

    def _send(self, gifts: Iterable[GiveSeed]) -> None:
        registry = self._context.registry
        for gift in gifts:
            channel = registry.channels.get(gift.seed.channel_id)
            if channel is None:
                continue  # Its removal is being written; if that fails, the seed is given again.
            router = channel.to_router if gift.to is End.RECEIVER else channel.from_router
            message = seed_message(gift.seed, gift.first_epoch, term=registry.term)
            self._context.send_router(router, message)

    def _accepted(self, name: str, message: SeedAccepted) -> None:
        """Give the sender of a channel the seed that its receiver has installed."""
        registry = self._context.registry
        channel = registry.channels.get(message.channel_id)
        if channel is not None:
            if channel.to_router == name:
                self._send(
                    self._giver.accepted(
                        message.channel_id, message.number, message.first_epoch, self._now_ns
                    )
                )
            return
        border = registry.tree.borders.get(message.channel_id)
        if border is not None and border.channel.to_router == name:
            self._parent.send(BorderSeedAccepted(term=self._parent.term, accepted=message))

    def _step(self) -> None:
        self._send(self._giver.step(self._now_ns))
        overdue = set(self._giver.overdue(self._now_ns)) & self._context.registry.channels.keys()
        for channel_id in sorted(overdue - self._overdue):
            self._context.warn(
                "seed_overdue",
                channel=self._context.registry.channels[channel_id].label,
                hint="one of its routers has no session with this broker; the channel stops 24 h "
                "after its last seed",
            )
        self._overdue = overdue
        self._context.set_timer(KEYS_TIMER, self._giver.tick_ns)

    # Channels between clouds.

    def _around_border(self, operation: BorderOpened, done: Applied, change: Change) -> None:
        change()
        done.tables.append(partial(self._want, (operation.border,)))

    def _parent_joined(self) -> None:
        self._want(self._context.registry.tree.borders.values())

    def _want(self, borders: Iterable[BorderChannel]) -> None:
        """Ask the owners of sealed channels for seeds of our ends that have a session."""
        if not self._parent.is_joined:
            return
        for border in borders:
            if border.datagram_version != SEALED_VERSION:
                continue
            for name in (border.channel.to_router, border.channel.from_router):
                is_ours = name in self._context.registry.routers
                if is_ours and self._context.tables[name].is_connected:
                    wanted = BorderSeedWanted(
                        term=self._parent.term,
                        channel_id=border.channel.channel_id,
                        router=name,
                    )
                    self._parent.send(wanted)

    def _pass_on(self, message: BorderSeed) -> None:
        """Pass a seed of a channel's owner on to the router at our end of the channel."""
        seed = message.seed
        border = self._context.registry.tree.borders.get(seed.channel_id)
        if border is None or message.router not in self._context.registry.routers:
            return
        is_sender = seed.first_epoch >= 0
        channel = border.channel
        if message.router == (channel.from_router if is_sender else channel.to_router):
            term = self._context.registry.term
            epoch = seed.first_epoch if is_sender else None
            self._context.send_router(message.router, seed_message(seed.seed, epoch, term=term))

    # What people see.

    def _survey(self) -> Facts:
        registry = self._context.registry
        plain = [each.label for each in registry.channels.values() if not each.is_sealed]
        plain_ends = Counter(
            edge
            for endpoint in registry.endpoints.values()
            for edge, attachment in endpoint.attachments.items()
            if attachment.security == NONE
        )
        return {
            "keys": {
                "sealed_channels": len(self._giver),
                "plain_channels": sorted(plain),
                "plain_end_points": dict(sorted(plain_ends.items())),
                "seeds_given": self._giver.seeds_given,
                "overdue": sorted(registry.channels[each].label for each in self._overdue),
                "closed": [self._closed[each] for each in sorted(self._closed)],
            }
        }

    @property
    def _now_ns(self) -> int:
        return self._context.now_ns


def _end(channel: EventChannel, router: str) -> End:
    return End.RECEIVER if channel.to_router == router else End.SENDER
