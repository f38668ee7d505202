"""Commands of operators to a broker above clouds: change its children and channels, and inspect it.

Commands are idempotent: a repeated command gets the answer of the first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import structs

from gridstat.broker.capacity.explanation import probe_facts
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.tree_operations import (
    ChannelAdded,
    ChannelRemoved,
    ChildAdded,
    ChildRemoved,
    Stage,
    body_of,
)
from gridstat.model.cloud import check_name
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    LimitReached,
    NoSuchChannel,
    NoSuchVariable,
    StillInUse,
    StorageFailed,
    UnknownName,
)
from gridstat.net.command.operator_messages import (
    AddChannel,
    AddChild,
    Explain,
    OperatorAnswer,
    RemoveChannel,
    RemoveChild,
    Survey,
)
from gridstat.net.command.tree_messages import BORDERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.components import Components
    from gridstat.broker.tree.owned_channels import ChannelAccount
    from gridstat.broker.tree.tree_operations import Holding, TreeOperation
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.operator_messages import OperatorCommand, TreeCommand

EXPLAINED_MAX: Final = 10_000
"""Maximum number of contracts that one explanation examines."""
EXPLAINED_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of one explanation; a frame holds this and one contract of maximum length."""

Facts = dict[str, Any]


class TreeOperatorCommands:
    """A child or channel is not removed while contracts depend on it."""

    def __init__(self, parts: Components) -> None:
        self._parts = parts
        self._context = parts.context

    def take(self, peer: str, command: OperatorCommand | TreeCommand) -> None:
        try:
            self._do(peer, command)
        except GridStatError as error:
            self._refuse(peer, command.request_id, error)

    def _do(self, peer: str, command: OperatorCommand | TreeCommand) -> None:
        handle = self._parts.capabilities.commands.get(type(command))
        if handle is not None:
            handle(peer, command)
            return
        match command:
            case Survey():
                self._answer(peer, command.request_id, self.survey())
            case Explain():
                self._answer(peer, command.request_id, self.explain(command.name))
            case AddChild():
                self._add_child(peer, command)
            case RemoveChild():
                self._remove_child(peer, command)
            case AddChannel():
                self._add_channel(peer, command)
            case RemoveChannel():
                self._remove_channel(peer, command)
            case _:
                name = type(command).__name__
                raise LayoutError(
                    f"{self._context.settings.name} is a broker above clouds, and does not "
                    f"support {name}",
                    hint="send the command to the broker of the cloud concerned",
                )

    # Children.

    def _add_child(self, peer: str, command: AddChild) -> None:
        name = check_name(command.name)
        if "/" in name or name in {self._context.settings.name, self._context.settings.parent}:
            raise LayoutError(f"{name} cannot be a child of {self._context.settings.name}")
        done = partial(self._answer, peer, command.request_id, {"child": name})
        if name in self._context.state.families.children:
            done()
        else:
            self._commit(peer, command.request_id, ChildAdded(name=name), done)

    def _remove_child(self, peer: str, command: RemoveChild) -> None:
        name, state = command.name, self._context.state
        if name not in state.families.children:
            raise UnknownName(f"{name[:80]} is not a child of {self._context.settings.name}")
        held = state.holdings.of_child(name)
        if held:
            raise StillInUse(f"{len(held)} contracts cross {name}", hint="end them first")
        if self._is_refused(peer, command):
            return
        attached = self._parts.borders.own_at(name)
        if attached:
            labels = ", ".join(channel.label for channel in attached[:8])
            raise StillInUse(
                f"{len(attached)} channels lead from or to {name}: {labels}",
                hint="remove them first",
            )

        def removed() -> None:
            self._parts.releases.child_removed(name)
            self._parts.graph.forget(name)
            self._parts.watches.forget(name)
            self._parts.membership.dismiss(name)
            self._answer(peer, command.request_id, {})

        self._commit(peer, command.request_id, ChildRemoved(name=name), removed)

    # Channels.

    def _add_channel(self, peer: str, command: AddChannel) -> None:
        state, channel = self._context.state, command.channel
        check_between(state.families.child_at, channel)
        number = state.channels.between.get((channel.from_router, channel.to_router))
        if number is not None:
            known = state.channels.accounts[number].channel
            same = replace(channel, channel_id=known.channel_id, level=known.level)
            if same != known:
                raise LayoutError(f"channel {known.label} is there already, and is another")
            self._answer(peer, command.request_id, _added(known))
            return
        if channel.channel_id:
            raise LayoutError(
                "channels between clouds are numbered by their broker",
                hint="0 lets the broker choose",
            )
        for end in (channel.from_router, channel.to_router):
            self._check_borders(end)
        numbered = replace(channel, channel_id=state.channels.next_number())
        if self._is_refused(peer, structs.replace(command, channel=numbered)):
            return

        def added() -> None:
            self._refresh_borders(numbered)
            self._answer(peer, command.request_id, _added(numbered))

        self._commit(peer, command.request_id, ChannelAdded(channel=numbered), added)

    def _check_borders(self, router: str) -> None:
        """Raise if a child would have more border routers than it can report."""
        child = self._context.state.families.child_at(router) or ""
        wanted = self._parts.borders.wanted(child)
        if router not in wanted and len(wanted) >= BORDERS_MAX:
            raise LimitReached(
                f"{child} has {len(wanted)} border routers already, and {BORDERS_MAX} are the most",
                hint="let the channel begin or end at one of those",
            )

    def _remove_channel(self, peer: str, command: RemoveChannel) -> None:
        state = self._context.state
        number = state.channels.between.get((command.from_router, command.to_router))
        if number is None:
            raise NoSuchChannel(f"there is no channel {command.from_router}→{command.to_router}")
        account = state.channels.accounts[number]
        using = state.holdings.over_channel(number)
        if self._is_refused(peer, command):
            return
        if using or account.carriage.streams:
            raise StillInUse(
                f"channel {account.channel.label} carries {len(using)} contracts, or one is being "
                "planned over it"
            )
        channel = account.channel

        def removed() -> None:
            self._parts.borders.closed(channel)
            self._refresh_borders(channel)
            self._answer(peer, command.request_id, {})

        self._commit(peer, command.request_id, ChannelRemoved(channel_id=number), removed)

    def _refresh_borders(self, channel: EventChannel) -> None:
        child_at = self._context.state.families.child_at
        self._parts.borders.refresh([child_at(channel.from_router), child_at(channel.to_router)])

    # Inspection.

    def survey(self) -> Facts:
        """Return all facts except the contracts, of which there may be a million."""
        state, settings = self._context.state, self._context.settings
        placed = state.placed
        return {
            "broker": settings.name,
            "term": state.term,
            "parent": settings.parent,
            "is_joined": self._context.is_parent_joined,
            "depth": state.depth,
            "above": list(placed.above) if placed is not None else [],
            "children": [
                {
                    "name": name,
                    "is_joined": name in self._context.joined,
                    "term": child.term,
                    "height": child.height,
                    "clouds": list(child.clouds),
                    "contracts": len(state.holdings.of_child(name)),
                }
                for name, child in sorted(state.families.children.items())
            ],
            "channels": [
                self._channel_facts(number, account)
                for number, account in sorted(state.channels.accounts.items())
            ],
            "contracts": state.holdings.owned_count,
            "segments": len(state.holdings) - state.holdings.owned_count,
            "broken": len(self._parts.replanning),
            "transactions": len(self._parts.coordinator),
            "releases": len(self._parts.releases),
            "watches": len(self._parts.watches),
            "numbers_given": state.numbers.last,
            "journal": self._context.outside.journal_figures(),
        }

    def _channel_facts(self, number: int, account: ChannelAccount) -> Facts:
        channel = account.channel
        return {
            "channel": channel.label,
            "channel_id": number,
            "level": self._context.state.depth,
            "is_open": self._parts.borders.is_open(channel),
            "is_up": not account.down_at,
            "is_pressed": account.is_back_pressured,
            "bandwidth_bytes_per_s": channel.bandwidth_bytes_per_s,
            "promised_bytes_per_s": float(account.carriage.bytes.value),
            **probe_facts(account.carriage),
            "latency_us": account.carriage.latency_us,
            "contracts": len(self._context.state.holdings.over_channel(number)),
        }

    def explain(self, name: str) -> Facts:
        """Return the segments and owners of a contract, or of all contracts on a variable."""
        holdings = self._context.state.holdings
        if "#" in name:
            found = list(holdings.of(name))
        else:
            child = self._context.state.families.child_at(name)
            contracts = sorted(holdings.of_child(child or ""))[:EXPLAINED_MAX]
            found = [
                holding
                for contract in contracts
                for holding in holdings.of(contract)
                if body_of(holding).variable.name == name
            ]
        if not found:
            raise NoSuchVariable(f"nothing of {name[:80]} is held here")
        shown: list[Facts] = []
        size_bytes = 0
        for one in found:
            facts = self._contract_facts(one)
            size_bytes += len(msgspec.msgpack.encode(facts))
            if shown and size_bytes > EXPLAINED_BYTES_MAX:
                break
            shown.append(facts)
        return {"name": name, "contracts": shown, "left_out": len(found) - len(shown)}

    def _contract_facts(self, holding: Holding) -> Facts:
        body = self._context.state.holdings.body(holding)
        stage = self._context.state.holdings.stage(holding)
        return {
            "contract": holding.contract,
            "generation": holding.generation,
            "owner": self._context.settings.name if holding.is_owned else "above",
            "stage": Stage(stage).name.lower(),
            "variable": body.variable.name,
            "subscriber": body.subscriber,
            "degraded": list(body.degraded),
            "troubles": self._parts.replanning.troubles(holding.contract),
            "paths": [
                {
                    "latency_us": path.latency_us,
                    "pieces": [
                        {
                            "owner": piece.owner,
                            "routers": list(piece.routers),
                            "latency_us": piece.latency_us,
                            "detection_ms": piece.detection_ms,
                        }
                        for piece in path.pieces
                    ],
                }
                for path in body.paths
            ],
        }

    # Answers.

    def _commit(
        self, peer: str, request_id: int, operation: TreeOperation, then: Callable[[], None]
    ) -> None:
        def failed(reason: str) -> None:
            self._refuse(peer, request_id, StorageFailed(f"nothing was changed: {reason}"))

        self._context.decide([operation], then, failed)

    def _is_refused(self, peer: str, command: OperatorCommand | TreeCommand) -> bool:
        """Refuse a command to which another capability objects; return whether one does."""
        refusal = self._parts.capabilities.objection(command)
        if refusal is not None:
            answer = OperatorAnswer(request_id=command.request_id, refused=refusal)
            self._context.send(peer, answer)
        return refusal is not None

    def _answer(self, peer: str, request_id: int, facts: Facts) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, facts=facts))

    def _refuse(self, peer: str, request_id: int, error: GridStatError) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, refused=refused(error)))


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
