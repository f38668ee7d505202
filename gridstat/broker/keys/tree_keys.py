"""Keys as a capability of a broker above clouds: seeds for the channels that it owns.

A leaf broker reports each new session of a border router at the end of a sealed channel with
`BorderSeedWanted`. The owner of the channel then begins an exchange once both ends have been
reported: `BorderSeed` goes down to the leaf broker of the receiving end, `BorderSeedAccepted` comes
back, and `BorderSeed` goes down to the sending end (`model/keys/seed_giver.py`). A broker between
owner and clouds passes all three on.

Loss of a child's session ends exchanges at its side; each leaf broker below reports its border
routers again after the next join. A restarted owner has no report left: a broker between repeats
those of the clouds below after it has joined, since their own sessions did not end.

A report names a channel by its number. The owner may not have that number yet: one that has lost
its journal counts anew, and only its place tells it the numbers that its clouds still have. They
join before, report once in a session, and regard a channel that is opened as before as no news. So
no report is judged before the place is known, and all are judged again after every place.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.model.keys.seed_giver import End, GiveSeed, SeedGiver
from gridstat.net.command.router_messages import seed_message
from gridstat.net.command.tree_messages import BorderSeed, BorderSeedAccepted, BorderSeedWanted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.records.operation import Applied
    from gridstat.broker.tree.tree_borders import TreeBorders
    from gridstat.broker.tree.tree_capability import Facts
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.cloud import EventChannel

KEYS_TIMER: Final = "keys"
REPORTS_MAX: Final = 65_536
"""Bound on the reports that a broker keeps, to repeat them or to judge them again."""


class TreeKeys:
    """Gives seeds of own channels; passes on those of brokers above."""

    def __init__(self, context: TreeContext, borders: TreeBorders) -> None:
        self._context = context
        self._borders = borders
        self._giver = SeedGiver(context.settings.keys, context.outside.random_bytes)
        self._overdue: set[int] = set()
        self._leaving: dict[int, EventChannel] = {}
        """Channels whose removal is being written; they are served as if they stayed."""
        self._reports: dict[tuple[int, str], str] = {}
        """Channel and router of each report, with the child in whose session it came."""

    def capability(self) -> TreeCapability:
        return TreeCapability(
            name="keys",
            child_messages={
                BorderSeedWanted: FromChild(self._wanted, self._is_below),
                BorderSeedAccepted: FromChild(self._accepted, self._is_at),
            },
            parent_messages={BorderSeed: self._pass_on},
            timers={KEYS_TIMER: self._step},
            resume=self._set_timer,
            child_left=self._child_left,
            parent_joined=self._parent_joined,
            place_changed=self._place_changed,
            channel_removed=self._channel_removed,
            channels_renumbered=self._close_all,
            survey=self._survey,
        )

    # Messages.

    def _is_below(self, child: str, message: BorderSeedWanted) -> bool:
        return self._context.state.families.child_at(message.router) == child

    def _is_at(self, child: str, message: BorderSeedAccepted) -> bool:
        return self._borders.is_at(child, message.accepted.channel_id)

    def _wanted(self, child: str, message: BorderSeedWanted) -> None:
        """Begin an exchange for an own channel at which a router has a new session."""
        is_placed, channel_id = self._context.is_placed, message.channel_id
        # Own channels have no final numbers without a place: then nobody can tell whose it is.
        is_plausible = not is_placed or self._borders.is_at(child, channel_id)
        report = channel_id, message.router
        if is_plausible and (report in self._reports or len(self._reports) < REPORTS_MAX):
            self._reports[report] = child
        if not is_placed:
            return
        channel = self._own(channel_id)
        if channel is None:
            self._context.send_parent(structs.replace(message, term=self._context.term))
        else:
            self._begin(channel, message.router)

    def _begin(self, channel: EventChannel, router: str) -> None:
        end = _end(channel, router)
        if end is not None and channel.is_sealed:
            now_ns = self._context.now_ns
            self._giver.open(channel.channel_id, now_ns)
            self._send(self._giver.end_up(channel.channel_id, end, now_ns))

    def _accepted(self, child: str, message: BorderSeedAccepted) -> None:
        accepted = message.accepted
        channel = self._own(accepted.channel_id)
        if channel is None:
            self._context.send_parent(structs.replace(message, term=self._context.term))
        elif self._context.state.families.child_at(channel.to_router) == child:
            now_ns = self._context.now_ns
            self._send(
                self._giver.accepted(
                    accepted.channel_id, accepted.number, accepted.first_epoch, now_ns
                )
            )

    def _pass_on(self, message: BorderSeed) -> None:
        self._send_down(message.router, structs.replace(message, term=self._context.term))

    def _send(self, gifts: Iterable[GiveSeed]) -> None:
        for gift in gifts:
            channel = self._channel(gift.seed.channel_id)
            router = channel.to_router if gift.to is End.RECEIVER else channel.from_router
            seed = seed_message(gift.seed, gift.first_epoch)
            self._send_down(router, BorderSeed(term=self._context.term, router=router, seed=seed))

    def _send_down(self, router: str, message: BorderSeed) -> None:
        child = self._context.state.families.child_at(router)
        if child is not None:
            self._context.send_child(child, message)

    # Events.

    def _step(self) -> None:
        now_ns = self._context.now_ns
        self._send(self._giver.step(now_ns))
        overdue = set(self._giver.overdue(now_ns))
        for channel_id in sorted(overdue - self._overdue):
            self._context.warn("seed_overdue", channel=self._channel(channel_id).label)
        self._overdue = overdue
        self._set_timer()

    def _set_timer(self) -> None:
        self._context.set_timer(KEYS_TIMER, self._giver.tick_ns)

    def _parent_joined(self) -> None:
        """Repeat the reports of the clouds below to a parent that may have lost them."""
        self._reports = {
            report: child
            for report, child in self._reports.items()
            if self._borders.is_at(child, report[0])
        }
        for channel_id, router in sorted(self._reports):
            if self._own(channel_id) is None:
                wanted = BorderSeedWanted(
                    term=self._context.term, channel_id=channel_id, router=router
                )
                self._context.send_parent(wanted)

    def _place_changed(self) -> None:
        """Begin exchanges for reports that came before own channels had their present numbers."""
        for channel_id, router in sorted(self._reports):
            channel = self._own(channel_id)
            end = None if channel is None else _end(channel, router)
            if channel is not None and end and not self._giver.is_up(channel_id, end):
                self._begin(channel, router)

    def _child_left(self, child: str) -> None:
        self._reports = {
            report: sender for report, sender in self._reports.items() if sender != child
        }
        child_at = self._context.state.families.child_at
        for channel_id in self._giver.channel_ids():
            channel = self._channel(channel_id)
            if child_at(channel.to_router) == child:
                self._giver.end_down(channel_id, End.RECEIVER)
            if child_at(channel.from_router) == child:
                self._giver.end_down(channel_id, End.SENDER)

    def _channel_removed(self, channel_id: int, done: Applied) -> None:
        """Serve a channel until its removal is durable, since a failed write undoes it."""
        if channel_id in self._giver:
            self._leaving[channel_id] = self._channel(channel_id)
            done.undo.append(partial(self._leaving.pop, channel_id, None))
            done.tables.append(partial(self._forget, channel_id))

    def _forget(self, channel_id: int) -> None:
        channel = self._leaving.pop(channel_id, None)
        if channel_id not in self._context.state.channels.accounts:
            self._giver.close(channel_id)
            self._overdue.discard(channel_id)
            for router in () if channel is None else (channel.from_router, channel.to_router):
                self._reports.pop((channel_id, router), None)

    def _close_all(self) -> None:
        """End all exchanges, since the channels get other numbers and are opened anew."""
        for channel_id in self._giver.channel_ids():
            self._giver.close(channel_id)
        self._overdue.clear()
        self._leaving.clear()

    def _own(self, channel_id: int) -> EventChannel | None:
        """Return a channel of this broker; None: it is not one."""
        account = self._context.state.channels.accounts.get(channel_id)
        return self._leaving.get(channel_id) if account is None else account.channel

    def _channel(self, channel_id: int) -> EventChannel:
        """Return a channel that is served."""
        channel = self._own(channel_id)
        assert channel is not None
        return channel

    def _survey(self) -> Facts:
        channels = [each.channel for each in self._context.state.channels.accounts.values()]
        reasons = [self._borders.closed_reason(channel) for channel in channels]
        return {
            "keys": {
                "sealed_channels": len(self._giver),
                "plain_channels": sorted(each.label for each in channels if not each.is_sealed),
                "seeds_given": self._giver.seeds_given,
                "overdue": sorted(self._channel(each).label for each in self._overdue),
                "closed": sorted(reason for reason in reasons if reason),
            }
        }


def _end(channel: EventChannel, router: str) -> End | None:
    """Return the end of a channel at which a router is; None: it is at neither."""
    if router == channel.to_router:
        return End.RECEIVER
    return End.SENDER if router == channel.from_router else None
