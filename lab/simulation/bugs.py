"""Protocol bugs, planted one at a time, that the simulator must find: tests of the tester.

Each is a mistake that somebody could make, put over the real code from outside and taken away
again; the product never holds any of them.
"""

# ruff: noqa: ANN401 — a patch knows of what it patches only what it changes.

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from gridstat.broker.access.resting_contracts import RestingContracts
from gridstat.broker.capacity.planning import Planner
from gridstat.broker.effects.effects import Effects
from gridstat.broker.effects.registration_effects import RegistrationEffects
from gridstat.broker.permissions import Permissions
from gridstat.broker.records.answer_cache import AnswerCache
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Moved, Retired, Unsubscribed
from gridstat.broker.records.registry import Registry
from gridstat.broker.requests import contract_changes, contract_notices, subscriptions
from gridstat.broker.requests.notices import Notices
from gridstat.broker.routers.path_moves import PathMoves
from gridstat.broker.tables.router_table import RouterTable
from gridstat.broker.unit_of_work import UnitOfWork
from gridstat.model.keys.channel_keys import ChannelKeys, SeedInstalled
from gridstat.model.keys.receiving_keys import ReceivingKeys
from gridstat.model.keys.seed_giver import End, SeedGiver
from gridstat.model.keys.sending_keys import SendingKeys
from gridstat.net.command.machine import Send
from gridstat.net.command.router_messages import TableChanged
from gridstat.router.agent_events import ApplyTable
from gridstat.router.edge_router import EdgeRouter
from gridstat.router.router_agent import RouterAgent
from gridstat.router.table_intake import TableIntake
from lab.simulation.planting import Bug, Patch
from lab.simulation.unseen_bugs import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.simulation.planting import Function


@contextmanager
def planted(name: str, bugs: Mapping[str, Bug] | None = None) -> Iterator[None]:
    """Run with the named bug, of `bugs` or of all here; without any if the name is empty."""
    patches = (BUGS if bugs is None else bugs)[name].patches if name else ()
    before = [(patch, patch.owner.__dict__[patch.name]) for patch in patches]
    try:
        for patch, right in before:
            setattr(patch.owner, patch.name, patch.planted(right))
        yield
    finally:
        for patch, right in before:
            setattr(patch.owner, patch.name, right)


# Mistakes of a broker.


def _check_nothing(_: Function) -> Function:
    def check_modes_defined(*_: Any) -> None:
        """Accept every request."""

    return check_modes_defined


def _acknowledge_at_once(right: Function) -> Function:
    def _persist(self: Any, *arguments: Any) -> None:
        right(self, *arguments)
        self.persisted(next(reversed(self._pending)))

    return _persist


def _leave_claims(_: Function) -> Function:
    def undo(self: Any, plan: Any) -> None:
        del self, plan

    return undo


def _leave_decisions(_: Function) -> Function:
    def roll_back(self: Any) -> None:
        del self

    return roll_back


def _retire_first(right: Function) -> Function:
    def follow(self: Any, old: Any, new: Any, told: Any) -> None:
        right(self, old, new, told)
        self._due.append((0, new.subscription_id, new.generation))
        self.retire_due()

    return follow


def _forget_the_replaced(right: Function) -> Function:
    def replay(self: Any, operation: Any) -> None:
        right(self, operation)
        if isinstance(operation, Moved) and not operation.with_publication:
            record = operation.subscription
            right(
                self,
                Retired(subscription_id=record.subscription_id, generation=record.generation),
            )

    return replay


def _believe_in_step(_: Function) -> Function:
    def begin_session(self: Any, *, term: int, digest: int) -> list[Any]:
        del term, digest
        self.is_connected = True
        self._begin_numbers()
        self._forget_changes()
        self._confirm_all()
        return []

    return begin_session


def _first_edge_only(right: Function) -> Function:
    def _up_channels(self: Any, publisher: str) -> Any:
        return right(self, publisher)[:1]

    return _up_channels


def _lowest_free(_: Function) -> Function:
    def next_variable_id(self: Any) -> int:
        number = 1
        while number in self.names:
            number += 1
        self.variable_id_last = max(self.variable_id_last, number)
        return number

    return next_variable_id


def _say_once(_: Function) -> Function:
    def repeat(self: Any, name: str, edge: str, *, lost_ns: int) -> None:
        del self, name, edge, lost_ns

    return repeat


def _keep_no_answer(_: Function) -> Function:
    def put(self: Any, request_id: int, body: bytes) -> None:
        del self, request_id, body

    return put


def _forget_ends(right: Function) -> Function:
    def replay(self: Any, operation: Any) -> None:
        if not isinstance(operation, Unsubscribed):
            right(self, operation)

    return replay


def _newest_paths(_: Function) -> Function:
    def ordered_paths(found: Any) -> Any:
        return found.record, found.variable

    return ordered_paths


# Mistakes of a router.


def _take_any_term(right: Function) -> Function:
    def _from_broker(self: Any, *arguments: Any) -> Any:
        self._term = 0
        return right(self, *arguments)

    return _from_broker


def _drop_last_piece(right: Function) -> Function:
    def _stage(self: Any, staged: Any, piece: Any) -> Any:
        if piece.is_last and not piece.begins_anew:
            nothing: dict[str, tuple[()]] = dict.fromkeys(
                ("channels", "sources", "variables", "paths"), ()
            )
            piece = msgspec.structs.replace(piece, **nothing)
        return right(self, staged, piece)

    return _stage


def _confirm_at_once(right: Function) -> Function:
    def _change(self: Any, *arguments: Any) -> Any:
        instructions = right(self, *arguments)
        confirmed = [
            Send(
                self._broker_peer,
                TableChanged(number=each.change.number, digest=self.table.digest),
            )
            for each in instructions
            if isinstance(each, ApplyTable)
        ]
        return [*instructions, *confirmed]

    return _change


def _forget_the_absent(right: Function) -> Function:
    def _pushed(self: Any, push: Any) -> Any:
        return right(self, push) if push.endpoint in self._attachments else []

    return _pushed


# Mistakes with keys.


def _give_again(right: Function) -> Function:
    def end_up(self: Any, channel_id: int, end: Any, now_ns: int) -> list[Any]:
        kept = vars(self).setdefault("_kept", {})
        if end is End.SENDER and channel_id in kept:
            return [kept[channel_id]]
        return cast("list[Any]", right(self, channel_id, end, now_ns))

    return end_up


def _keep_given(right: Function) -> Function:
    def accepted(self: Any, *arguments: Any) -> list[Any]:
        given = cast("list[Any]", right(self, *arguments))
        for gift in given:
            vars(self).setdefault("_kept", {})[gift.seed.channel_id] = gift
        return given

    return accepted


def _accept_without_keys(_: Function) -> Function:
    def accept(self: Any, seed: Any, now_ns: int) -> list[Any]:
        keys = self._receiving.setdefault(seed.channel_id, ReceivingKeys())
        return [SeedInstalled(seed.channel_id, seed.number, keys.accept(seed, now_ns, 0))]

    return accept


def _keep_the_first(right: Function) -> Function:
    def init(self: Any, seed: Any, first_epoch: int, now_ns: int) -> None:
        right(self, seed, first_epoch, now_ns)
        self.first = seed.secret, first_epoch

    return init


def _go_back(_: Function) -> Function:
    def go_on(self: Any, now_ns: int) -> Any:
        del now_ns
        self._secret, self.epoch = self.first
        return self.key()

    return go_on


def _follow_nobody(_: Function) -> Function:
    def step(self: Any, *_: Any) -> bool:
        del self
        return False

    return step


def _end_nothing(right: Function) -> Function:
    def find(self: Any, sweep: Any) -> Any:
        found = right(self, sweep)
        return type(found)()

    return find


def _allow_all(_: Function) -> Function:
    def check(self: Any, wish: Any) -> None:
        del self, wish

    return check


BUGS: Final[dict[str, Bug]] = {
    "acknowledge-before-persist": Bug(
        "the broker acts on a decision before the journal has it",
        (Patch(UnitOfWork, "_persist", _acknowledge_at_once),),
    ),
    "notify-before-persist": Bug(
        "a notice names the paths of a move that the journal does not have yet",
        (Patch(contract_notices, "ordered_paths", _newest_paths),),
    ),
    "accept-a-stale-term": Bug(
        "a router obeys a broker whose term is over",
        (Patch(RouterAgent, "_from_broker", _take_any_term),),
    ),
    "keep-claims-of-a-refusal": Bug(
        "a plan that does not fit leaves its claims behind",
        (Patch(Planner, "undo", _leave_claims),),
    ),
    "keep-decisions-of-a-full-disk": Bug(
        "what could not be written is not undone",
        (Patch(Applied, "roll_back", _leave_decisions),),
    ),
    "break-before-make": Bug(
        "a change tears the old paths down before the new ones are up",
        (Patch(PathMoves, "follow", _retire_first),),
    ),
    "believe-a-returning-router": Bug(
        "what a lost session left undone is forgotten: no digest is compared",
        (Patch(RouterTable, "begin_session", _believe_in_step),),
    ),
    "skip-the-second-edge": Bug(
        "a variable is sourced at the first edge of its publisher only",
        (Patch(RegistrationEffects, "_up_channels", _first_edge_only),),
    ),
    "reuse-a-variable-identifier": Bug(
        "the lowest free identifier is given out again",
        (Patch(Registry, "next_variable_id", _lowest_free),),
    ),
    "drop-the-last-piece": Bug(
        "a whole table is taken without its last piece",
        (Patch(TableIntake, "_stage", _drop_last_piece),),
    ),
    "take-any-mode": Bug(
        "modes that nobody has defined are granted",
        (
            Patch(subscriptions, "check_modes_defined", _check_nothing),
            Patch(contract_changes, "check_modes_defined", _check_nothing),
        ),
    ),
    "change-to-any-mode": Bug(
        "a live contract is changed to modes that nobody has defined",
        (Patch(contract_changes, "check_modes_defined", _check_nothing),),
    ),
    "drop-a-push": Bug(
        "a notice to somebody who is away is lost",
        (
            Patch(Notices, "repeat", _say_once),
            Patch(EdgeRouter, "_pushed", _forget_the_absent),
        ),
    ),
    "keep-no-answers": Bug(
        "a repeated request is decided anew",
        (Patch(AnswerCache, "put", _keep_no_answer),),
    ),
    "confirm-before-the-core": Bug(
        "a router confirms orders that its core does not have yet",
        (Patch(RouterAgent, "_change", _confirm_at_once),),
    ),
    "forget-ends-at-a-restart": Bug(
        "a restarted broker holds contracts that had ended",
        (Patch(Effects, "replay", _forget_ends),),
    ),
    "give-a-seed-to-two-processes": Bug(
        "a restarted sender is given the seed of the process before",
        (Patch(SeedGiver, "end_up", _give_again), Patch(SeedGiver, "accepted", _keep_given)),
    ),
    "accept-a-seed-without-its-keys": Bug(
        "a receiver answers a seed before it accepts datagrams under it",
        (Patch(ChannelKeys, "accept", _accept_without_keys),),
    ),
    "reopen-with-the-same-key": Bug(
        "a channel that is opened again begins its seed from the first key",
        (Patch(SendingKeys, "__init__", _keep_the_first), Patch(SendingKeys, "go_on", _go_back)),
    ),
    "never-follow-an-epoch": Bug(
        "a receiver accepts the first epochs of a seed, and none after them",
        (Patch(ReceivingKeys, "step", _follow_nobody),),
    ),
    "forget-the-replaced-at-a-restart": Bug(
        "a broker that restarts in the middle of a move has only the new paths on its mind",
        (Patch(Effects, "replay", _forget_the_replaced),),
    ),
    "keep-what-rested-on-a-rule": Bug(
        "a revoked rule ends nothing",
        (Patch(RestingContracts, "find", _end_nothing),),
    ),
    "ask-no-rule": Bug(
        "requests are granted whatever the rules say",
        (Patch(Permissions, "check", _allow_all),),
    ),
    **UNSEEN,
}
