"""Queries, which change nothing durable: names, variables that match a pattern, and ledgers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gridstat.broker.requests.outcomes import ANSWER_BYTES_MAX, encode_outcomes, refused
from gridstat.model.access_rules import Action, Wish
from gridstat.model.cloud import check_stored_pattern
from gridstat.model.errors import (
    GridStatError,
    LinkDown,
    NoSuchRouter,
    NotAuthorised,
)
from gridstat.model.path_label import path_label
from gridstat.net.command.endpoint_messages import (
    LEDGER_PATHS_MAX,
    Answer,
    DoneOutcome,
    FoundOutcome,
    ResolvedOutcome,
    ResolveName,
    Submit,
)
from gridstat.net.command.frames import decode_command
from gridstat.net.command.machine import Received, Send
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.registry import Registry, Subscription
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import (
        FindVariables,
        LedgerEntry,
        Outcome,
        PathEntry,
        ReportLedger,
    )
    from gridstat.net.command.machine import Event, Instruction

FIND_AT_ONCE: Final = 64
"""Names that a find looks at in one turn, so that a wide pattern does not delay others."""
COUNT_MAX: Final = 2**53
"""Largest count that JSON and Prometheus represent exactly."""


class PathReports(Protocol):
    """Receiver of the contracts that a subscriber sees as impaired (`recovery.py`)."""

    def report_impaired(self, subscriber: str, number: int) -> None: ...

    def is_whole(self, found: Subscription) -> bool: ...


class RemotePathReports(Protocol):
    """Receiver of such reports for contracts with other clouds (`segments/remote_contracts.py`)."""

    def report_impaired(
        self, subscriber: str, number: int, is_whole: Callable[[Subscription], bool]
    ) -> None: ...


@dataclass(slots=True)
class Search:
    """A find that is decided in slices: what it has found, and the name that it looked at last."""

    patterns: Sequence[str]
    limit: int
    after: str
    found: list[StatusVariable] = field(default_factory=list)
    size_bytes: int = 0
    is_complete: bool = True

    def take(self, variable: StatusVariable) -> bool:
        """Keep a variable, or return false if the answer has no room for it."""
        self.size_bytes += len(msgspec.msgpack.encode(variable))
        self.is_complete = len(self.found) < self.limit and self.size_bytes <= ANSWER_BYTES_MAX
        if self.is_complete:
            self.found.append(variable)
        return self.is_complete


class Queries:
    """Queries are answered from the registry, and not journalled; a find takes several turns."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        recovery: PathReports,
        remote_contracts: RemotePathReports,
    ) -> None:
        self._context = context
        self._requests = requests
        self._recovery = recovery
        self._remote_contracts = remote_contracts

    def resolve(self, request: Request, command: ResolveName) -> None:
        self._requests.answer(request, (resolve(self._context.registry, command.name),))

    def find(self, request: Request, command: FindVariables) -> None:
        limit = max(0, min(command.limit, MANY_MAX))
        pattern = check_stored_pattern(command.pattern)
        permissions, who = self._context.permissions, request.endpoint
        permissions.check_pattern(who, Action.FIND, pattern)
        # Names that no rule allows are not even looked at: there may be very many of them.
        names = len(self._context.registry.publications)
        patterns = permissions.patterns_within(who, Action.FIND, pattern, names=names)
        self._find_on(request, Search(patterns, limit, command.after))

    def _find_on(self, request: Request, search: Search) -> None:
        """Look at the next names, answer if that was all, and else go on in a later turn."""
        permissions, who = self._context.permissions, request.endpoint
        names = self._context.registry.matching_any(search.patterns, after=search.after)
        for looked, (name, publication) in enumerate(names):
            if looked == FIND_AT_ONCE or publication is None:
                search.after = name if publication is None else search.after
                self._requests.go_on(request, partial(self._find_on, request, search))
                return
            search.after = name
            if permissions.allows(Wish(who, Action.FIND, name)) and (
                not search.take(publication.variable)
            ):
                break
        outcome = FoundOutcome(variables=tuple(search.found), is_complete=search.is_complete)
        self._requests.answer(request, (outcome,))

    def keep_ledger(self, request: Request, command: ReportLedger) -> None:
        """Keep the newest figures of each contract, in memory only, for operators."""
        registry = self._context.registry
        for entry in command.entries:
            number = entry.subscription_id
            found = registry.subscriptions.get(number) or registry.tree.asked.get(number)
            if found is not None and found.record.subscriber == request.endpoint:
                found.ledger = kept_ledger(entry, found.ledger)
        for number in command.impaired:
            self._recovery.report_impaired(request.endpoint, number)
            self._remote_contracts.report_impaired(
                request.endpoint, number, self._recovery.is_whole
            )
        self._requests.answer(request, (DoneOutcome(),))


# Ledgers: checked for plausibility, and merged with the last report. End-points rarely report paths
# that a contract has left, so the last report of each path is kept.


def kept_ledger(reported: LedgerEntry, before: LedgerEntry | None) -> LedgerEntry:
    """Return the ledger to keep; one implausible path is enough to drop all paths."""
    if not reported.paths:
        return reported
    if not _is_plausible(reported.paths):
        return msgspec.structs.replace(reported, paths=())
    is_full = not all(path.is_open for path in reported.paths)
    if is_full or before is None or not before.paths:
        return reported
    return msgspec.structs.replace(
        reported, paths=(*reported.paths, *_left(reported.paths, before.paths))
    )


def _left(reported: Sequence[PathEntry], before: Sequence[PathEntry]) -> list[PathEntry]:
    """Return the paths that are no longer reported, with their last figures."""
    now = {_key(path) for path in reported}
    left = [
        msgspec.structs.replace(path, is_open=False) for path in before if _key(path) not in now
    ]
    return left[: LEDGER_PATHS_MAX - len(reported)]


def _is_plausible(paths: Sequence[PathEntry]) -> bool:
    is_distinct = len({_key(path) for path in paths}) == len(paths)
    return is_distinct and all(_adds_up(path) for path in paths)


def _adds_up(path: PathEntry) -> bool:
    parts = path.first, path.late or 0
    return (
        path.expected == path.delivered + path.lost
        and max(parts) <= path.delivered
        and max(path.expected, path.one_in) <= COUNT_MAX
    )


def _key(path: PathEntry) -> str:
    return path_label(path.routers, path.channel_names) or path.name


# Addresses of names: a router is reached at the address that it reported (S0 §2.3.8).
#
# The broker process answers such queries on a listener of its own, for any valid certificate: an
# end-point or router needs to know only the address of its broker.


def resolve(registry: Registry, name: str) -> ResolvedOutcome:
    """Return the address of a router; raise `NoSuchRouter`, or `LinkDown` before its report."""
    if name not in registry.routers:
        raise NoSuchRouter(f"cloud {registry.cloud} has no router {name[:80]}")
    report = registry.reports.get(name)
    if report is None or report.command_port == 0:
        raise LinkDown(f"router {name} has not said yet where it listens")
    return ResolvedOutcome(host=report.command_host or report.host, port=report.command_port)


class NameService:
    """Machine that answers names only; as it changes nothing, requests need no signature."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._broker: ResolvedOutcome | None = None

    def listen_at(self, host: str, port: int) -> None:
        """Set the address of the broker itself, whose name is that of the cloud."""
        self._broker = ResolvedOutcome(host=host, port=port)

    def handle(self, event: Event, now_ns: int) -> list[Instruction]:
        del now_ns  # Addresses do not depend on the time.
        if isinstance(event, Received) and isinstance(event.message, Submit):
            body = encode_outcomes((self._answer(event.message.body),))
            return [Send(event.peer, Answer(request_id=event.message.request_id, body=body))]
        return []

    def _answer(self, body: bytes) -> Outcome:
        try:
            command = decode_command(body)
            if not isinstance(command, ResolveName):
                raise NotAuthorised("rule name service: only names are answered here")
            if command.name == self._registry.cloud and self._broker is not None:
                return self._broker
            return resolve(self._registry, command.name)
        except GridStatError as error:
            return refused(error)
