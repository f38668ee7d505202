"""Commands of operators: add and remove routers and channels, surveys (S0 §3.8).

A change is checked, written, and answered once it is durable; a failed write refuses it. A repeated
command finds its change made, and is answered as the first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.operators.cloud_account import CloudAccount
from gridstat.broker.records.operations import (
    ChannelAdded,
    ChannelRemoved,
    RouterAdded,
    RouterRemoved,
)
from gridstat.broker.records.registry import ALLOTTED_CHANNEL_ID_MIN
from gridstat.broker.records.snapshot import cloud_snapshot
from gridstat.broker.requests.outcomes import few_words, refused
from gridstat.model.cloud import check_name, label_of_way
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NoSuchChannel,
    NoSuchRouter,
    StillInUse,
    StorageFailed,
    WrongCloud,
)
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.operator_messages import (
    Account,
    AddChannel,
    AddNamedChannel,
    AddRouter,
    Explain,
    OperatorAnswer,
    OperatorCommand,
    RemoveChannel,
    RemoveNamedChannel,
    RemoveRouter,
    Survey,
    TreeCommand,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gridstat.broker.capacity.allocation import Refusal
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.effects.cloud_effects import CloudEffects
    from gridstat.broker.operators.survey import Facts, ReportedLedger, Surveyor
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.model.cloud import EventChannel, Router, Way


TEXT_MAX: Final = 200
ANOTHER_NAME: Final = "a channel beside it needs a name of its own: --name"


class OperatorCommands:
    """Refuses to remove a router or channel while contracts or end-points depend on it."""

    def __init__(
        self,
        context: BrokerContext,
        surveyor: Surveyor,
        health: RouterHealth,
    ) -> None:
        self._context = context
        self._surveyor = surveyor
        self._account = CloudAccount(context, surveyor.counters)
        self._health = health
        self._started_ns = 0

    def capability(
        self,
        effects: CloudEffects,
        routers: Mapping[str, Router],
        channels: Mapping[int, EventChannel],
    ) -> LeafCapability:
        """Register the cloud itself, given the routers and channels of the broker's file."""
        return LeafCapability(
            name="cloud",
            operations=effects.operations(),
            snapshot=partial(cloud_snapshot, self._context.registry, routers, channels),
            resume=self.begin,
            operator_commands={
                Survey: self._send_survey,
                Account: self._send_account,
                Explain: self._explain,
                AddRouter: self._add_router,
                RemoveRouter: self._remove_router,
                AddChannel: self._add_channel,
                RemoveChannel: self._remove_channel,
                AddNamedChannel: self._add_channel,
                RemoveNamedChannel: self._remove_channel,
            },
            asks_about=frozenset({AddChannel, RemoveChannel}),
            survey=self.survey,
        )

    def begin(self) -> None:
        """Start the clock of the uptime, and warn of contracts in undefined modes."""
        self._surveyor.undefined_modes.look()
        self._started_ns = self._context.now_ns

    def take(self, peer: str, command: OperatorCommand | TreeCommand) -> None:
        """Have a command decided by the capability that registered it.

        No capability of a cloud registers commands to brokers above clouds.
        """
        try:
            handle = self._context.capabilities.operator_commands.get(type(command))
            if handle is None:
                raise LayoutError(
                    f"the broker of a cloud does not support {type(command).__name__}",
                    hint="send the command to a broker above the cloud",
                )
            handle(peer, command)
        except GridStatError as error:
            self._refuse(peer, command.request_id, error)

    def survey(self) -> Facts:
        """Return the rows of the survey on the cloud, its end-points and their contracts."""
        return self._surveyor.survey(started_ns=self._started_ns)

    def ledgers(self) -> list[ReportedLedger]:
        return self._surveyor.ledgers()

    # Questions.

    def _send_survey(self, peer: str, command: Survey) -> None:
        self._answer(peer, command.request_id, self._context.capabilities.survey())

    def _send_account(self, peer: str, command: Account) -> None:
        self._answer(peer, command.request_id, self._account.page(command.after))

    def _explain(self, peer: str, command: Explain) -> None:
        self._answer(peer, command.request_id, self._surveyor.explain(command.name))

    # Changes of the cloud.

    def _add_router(self, peer: str, command: AddRouter) -> None:
        router, registry = command.router, self._context.registry
        if router.name.partition("/")[0] != registry.cloud:
            raise WrongCloud(f"router {router.name} is not of cloud {registry.cloud}")
        known = registry.routers.get(router.name)
        if known is None:
            check_name(router.name)
        if known is not None and known != router:
            raise LayoutError(f"router {router.name} exists already, with other properties")
        if known is None:
            done = partial(self._done, peer, command.request_id, {"router": router.name})
            self._commit(peer, command.request_id, RouterAdded(router=router), done)
            self._health.watch(router.name)
        else:
            self._answer(peer, command.request_id, {"router": router.name})

    def _remove_router(self, peer: str, command: RemoveRouter) -> None:
        registry, name = self._context.registry, command.name
        if name not in registry.routers:
            raise NoSuchRouter(f"there is no router {name[:80]}")
        attached = registry.attached_to.get(name, ())
        if attached:
            raise StillInUse(f"router {name} has {len(attached)} end-points attached")
        if registry.through_router.get(name) or self._context.reservations.is_loaded(name):
            count = len(registry.through_router.get(name, ()))
            raise StillInUse(f"router {name} carries {count} subscriptions, or did a moment ago")
        if registry.channels_of.get(name):
            labels = sorted(registry.channels[one].label for one in registry.channels_of[name])
            raise StillInUse(
                f"router {name} still has channels: {', '.join(labels)}", hint="remove them first"
            )
        if self._context.settings.parent and (borders := registry.tree.borders_at(name)):
            raise StillInUse(
                f"router {name} still has channels to other clouds: "
                f"{', '.join(few_words([border.channel.label for border in borders]))}",
                hint="remove them first, at the broker above this cloud that owns them",
            )
        self._context.commit(
            [RouterRemoved(name=name)],
            partial(self._router_removed, peer, command),
            partial(self._router_kept, peer, command),
        )

    def _router_removed(self, peer: str, command: RemoveRouter, _: Applied) -> None:
        name = command.name
        self._health.forget_router(name)
        self._context.close(f"router/{name}", NoSuchRouter(f"router {name} was removed"))
        self._answer(peer, command.request_id, {})

    def _router_kept(self, peer: str, command: RemoveRouter, reason: str) -> None:
        self._health.absence_timed_out(command.name)  # A router that was absent still is.
        self._failed(peer, command.request_id, reason)

    def _add_channel(self, peer: str, command: AddChannel | AddNamedChannel) -> None:
        registry, channel = self._context.registry, command.channel
        for end in (channel.from_router, channel.to_router):
            if end not in registry.routers:
                raise NoSuchRouter(f"there is no router {end}")
        known_id = registry.channel_on.get(channel.way)
        if known_id is not None:
            known = registry.channels[known_id]
            if replace(channel, channel_id=known.channel_id) != known:
                raise LayoutError(
                    f"channel {known.label} exists already, with other properties",
                    hint=ANOTHER_NAME,
                )
            self._answer(peer, command.request_id, _added(known))
            return
        if channel.channel_id == 0:
            channel = replace(channel, channel_id=ChannelId(self._context.new_channel_id()))
        elif channel.channel_id >= ALLOTTED_CHANNEL_ID_MIN or channel.channel_id < 0:
            raise LayoutError(
                f"channel_id {channel.channel_id} is not below {ALLOTTED_CHANNEL_ID_MIN}",
                hint="0 lets the broker choose",
            )
        elif channel.channel_id in registry.channels:
            raise LayoutError(f"channel_id {channel.channel_id} is taken")
        refusal = self._context.capabilities.objection(
            AddChannel(request_id=command.request_id, channel=channel)
        )
        if refusal is not None:
            self._refuse(peer, command.request_id, refusal)
            return
        done = partial(self._done, peer, command.request_id, _added(channel))
        self._commit(peer, command.request_id, ChannelAdded(channel=channel), done)

    def _remove_channel(self, peer: str, command: RemoveChannel | RemoveNamedChannel) -> None:
        registry = self._context.registry
        way = way_of(command)
        number = registry.channel_on.get(way)
        if number is None:
            raise no_such_channel(way, registry.channel_on)
        using = registry.over_channel.get(number, ())
        refusal = self._context.capabilities.objection(RemoveChannel(command.request_id, *way[:2]))
        if refusal is not None:
            self._refuse(peer, command.request_id, refusal)
            return
        if using or self._context.reservations.is_loaded(number):
            label = registry.channels[number].label
            raise StillInUse(
                f"channel {label} carries {len(using)} subscriptions, or did a moment ago"
            )
        self._context.commit(
            [ChannelRemoved(channel_id=number)],
            partial(self._channel_removed, peer, command.request_id, number),
            partial(self._channel_kept, peer, command.request_id, number),
        )

    def _channel_removed(self, peer: str, request_id: int, number: int, _: Applied) -> None:
        self._health.forget_channel(number)
        self._answer(peer, request_id, {})

    def _channel_kept(self, peer: str, request_id: int, number: int, reason: str) -> None:
        # The rollback has added the channel anew, as one that is up.
        if number in self._context.registry.channels and number in self._health.down_channels:
            self._context.reservations.resources.mark_channel(number, is_up=False)
        self._failed(peer, request_id, reason)

    # Answers.

    def _commit(
        self,
        peer: str,
        request_id: int,
        operation: Operation,
        then: Callable[[Applied], None],
    ) -> None:
        self._context.commit([operation], then, partial(self._failed, peer, request_id))

    def _done(self, peer: str, request_id: int, facts: Facts, _: Applied) -> None:
        self._answer(peer, request_id, facts)

    def _failed(self, peer: str, request_id: int, reason: str) -> None:
        self._refuse(peer, request_id, StorageFailed(f"nothing was changed: {reason}"))

    def _answer(self, peer: str, request_id: int, facts: Facts) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, facts=facts))

    def _refuse(self, peer: str, request_id: int, error: GridStatError | Refusal) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, refused=refused(error)))


def way_of(command: RemoveChannel | RemoveNamedChannel) -> Way:
    name = command.name if isinstance(command, RemoveNamedChannel) else ""
    return command.from_router, command.to_router, name


def no_such_channel(way: Way, others: Iterable[Way]) -> NoSuchChannel:
    """Return an error that tells the names of the channels that are there instead."""
    beside = [label_of_way(other) for other in sorted(others) if other[:2] == way[:2]]
    hint = f"there are {', '.join(few_words(beside))}" if beside else ""
    return NoSuchChannel(f"there is no channel {label_of_way(way)[:TEXT_MAX]}", hint=hint)


def _added(channel: EventChannel) -> Facts:
    return {"channel": channel.label, "channel_id": channel.channel_id}
