"""Channels between clouds, as operators change and inspect them.

`tree_borders.py` opens the channels at border routers, `configured_channels.py` numbers those of
the broker's file, `owned_channels.py` has the accounts of their capacity.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.capacity.explanation import probe_facts
from gridstat.broker.operators.operator_commands import ANOTHER_NAME, no_such_channel, way_of
from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.broker.tree.tree_operations import (
    ChannelsNumbered,
    TreeChannelAdded,
    TreeChannelRemoved,
)
from gridstat.model.cloud import check_name
from gridstat.model.errors import LayoutError, LimitReached, StillInUse
from gridstat.net.command.operator_messages import (
    AddChannel,
    AddNamedChannel,
    RemoveChannel,
    RemoveNamedChannel,
)
from gridstat.net.command.tree_messages import (
    BORDERS_MAX,
    BorderChannelReported,
    BorderReported,
    CloseBorder,
    OpenBorder,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.channel_account import ChannelAccount
    from gridstat.broker.tree.tree_borders import TreeBorders
    from gridstat.broker.tree.tree_capability import Facts
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operator_commands import TreeOperatorCommands
    from gridstat.model.cloud import EventChannel


class ChannelCommands:
    """A channel is not removed while contracts depend on it."""

    def __init__(
        self, context: TreeContext, operators: TreeOperatorCommands, borders: TreeBorders
    ) -> None:
        self._context = context
        self._operators = operators
        self._borders = borders

    def capability(self) -> TreeCapability:
        """Return the registration of the channels, and of the border routers at their ends."""
        state, borders = self._context.state, self._borders
        return TreeCapability(
            name="channels",
            child_messages={
                BorderReported: FromChild(self._border_reported, self._is_below),
                BorderChannelReported: FromChild(borders.channel_reported, self._is_at),
            },
            parent_messages={OpenBorder: borders.open_above, CloseBorder: borders.close_above},
            operator_commands={
                AddChannel: self._add,
                RemoveChannel: self._remove,
                AddNamedChannel: self._add,
                RemoveNamedChannel: self._remove,
            },
            asks_about=frozenset({AddChannel, RemoveChannel}),
            survey=self._facts,
            operations={
                TreeChannelAdded: state.change_channels,
                TreeChannelRemoved: state.change_channels,
                ChannelsNumbered: state.change_channels,
            },
            snapshot=state.file_channels.operations,
            resume=self._context.unsettle,
            child_joined=borders.child_joined,
            child_left=borders.child_left,
            clouds_changed=self._clouds_changed,
            parent_joined=borders.parent_joined,
            place_changed=self._place_changed,
        )

    # Messages and events.

    def _is_below(self, child: str, message: BorderReported) -> bool:
        return self._context.state.families.child_at(message.router) == child

    def _is_at(self, child: str, message: BorderChannelReported) -> bool:
        return self._borders.is_at(child, message.channel_id)

    def _border_reported(self, child: str, message: BorderReported) -> None:
        del child
        self._borders.border_reported(message)

    def _clouds_changed(self, child: str) -> None:
        self._borders.refresh([child])

    def _place_changed(self) -> None:
        """Order all channels again, by their present numbers."""
        self._borders.refresh(sorted(self._context.joined))

    # Commands.

    def _add(self, peer: str, command: AddChannel | AddNamedChannel) -> None:
        state, channel = self._context.state, command.channel
        check_between(state.families.child_at, channel)
        number = state.channels.on.get(channel.way)
        if number is not None:
            known = state.channels.accounts[number].channel
            same = replace(channel, channel_id=known.channel_id, level=known.level)
            if same != known:
                raise LayoutError(
                    f"channel {known.label} is there already, and is another", hint=ANOTHER_NAME
                )
            self._operators.answer(peer, command.request_id, _added(known))
            return
        if channel.channel_id:
            raise LayoutError(
                "channels between clouds are numbered by their broker",
                hint="0 lets the broker choose",
            )
        for end in (channel.from_router, channel.to_router):
            self._check_borders(check_name(end))
        numbered = replace(channel, channel_id=state.channels.next_number())
        if self._operators.is_refused(peer, AddChannel(command.request_id, numbered)):
            return
        added = partial(self._added, peer, command.request_id, numbered)
        self._operators.commit(peer, command.request_id, TreeChannelAdded(channel=numbered), added)

    def _added(self, peer: str, request_id: int, channel: EventChannel) -> None:
        self._refresh_borders(channel)
        self._operators.answer(peer, request_id, _added(channel))

    def _check_borders(self, router: str) -> None:
        """Raise if a child would have more border routers than it can report."""
        child = self._context.state.families.child_at(router) or ""
        wanted = self._borders.wanted(child)
        if router not in wanted and len(wanted) >= BORDERS_MAX:
            raise LimitReached(
                f"{child} has {len(wanted)} border routers already, and {BORDERS_MAX} are the most",
                hint="let the channel begin or end at one of those",
            )

    def _remove(self, peer: str, command: RemoveChannel | RemoveNamedChannel) -> None:
        state = self._context.state
        way = way_of(command)
        number = state.channels.on.get(way)
        if number is None:
            raise no_such_channel(way, state.channels.on)
        if self._operators.is_refused(peer, RemoveChannel(command.request_id, *way[:2])):
            return
        account = state.channels.accounts[number]
        using = state.holdings.over_channel(number)
        if using or account.carriage.streams:
            raise StillInUse(
                f"channel {account.channel.label} carries {len(using)} contracts, or one is being "
                "planned over it"
            )
        removed = partial(self._removed, peer, command.request_id, account.channel)
        operation = TreeChannelRemoved(channel_id=number)
        self._operators.commit(peer, command.request_id, operation, removed)

    def _removed(self, peer: str, request_id: int, channel: EventChannel) -> None:
        self._borders.closed(channel)
        self._refresh_borders(channel)
        self._operators.answer(peer, request_id, {})

    def _refresh_borders(self, channel: EventChannel) -> None:
        child_at = self._context.state.families.child_at
        self._borders.refresh([child_at(channel.from_router), child_at(channel.to_router)])

    # Inspection.

    def _facts(self) -> Facts:
        accounts = self._context.state.channels.accounts
        return {
            "channels": [
                self._channel_facts(number, account) for number, account in sorted(accounts.items())
            ]
        }

    def _channel_facts(self, number: int, account: ChannelAccount) -> Facts:
        channel = account.channel
        return {
            "channel": channel.label,
            "channel_id": number,
            "level": self._context.state.depth,
            "security": channel.security,
            "risks": list(channel.risks),
            "is_open": self._borders.is_open(channel),
            "is_up": not account.down_at,
            "is_pressed": account.is_back_pressured,
            "bandwidth_bytes_per_s": channel.bandwidth_bytes_per_s,
            "promised_bytes_per_s": float(account.carriage.bytes.value),
            **probe_facts(account.carriage),
            "latency_us": account.carriage.latency_us,
            "contracts": len(self._context.state.holdings.over_channel(number)),
        }


def check_between(child_at: Callable[[str], str | None], channel: EventChannel) -> None:
    """Raise unless the channel connects the scopes of two children."""
    ends = [child_at(end) for end in (channel.from_router, channel.to_router)]
    for end, child in zip((channel.from_router, channel.to_router), ends, strict=True):
        if child is None:
            raise LayoutError(f"no child has the cloud of {end}", hint="let the child join first")
    if ends[0] == ends[1]:
        raise LayoutError(
            f"both ends of {channel.label} lie below {ends[0]}, whose channel it is then",
            hint=f"add it to {ends[0]}",
        )


def _added(channel: EventChannel) -> Facts:
    return {"channel": channel.label, "channel_id": channel.channel_id}
