"""Requests that change nothing durable: names, variables that match, and ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gridstat.broker.requests.name_service import resolve
from gridstat.broker.requests.outcomes import ANSWER_BYTES_MAX
from gridstat.broker.requests.path_entries import kept_ledger
from gridstat.model.cloud import check_pattern
from gridstat.net.command.endpoint_messages import DoneOutcome, FoundOutcome
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.desk import Desk
    from gridstat.broker.requests.requests import Request, Requests
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import (
        FindVariables,
        ReportLedger,
        ResolveName,
    )


class Enquiries:
    """Answered at once from the registry; nothing here is journalled."""

    def __init__(self, desk: Desk, requests: Requests) -> None:
        self._desk = desk
        self._requests = requests
        self.held_impaired: Callable[[str, int], None] = _nobody
        """Whom to tell that a subscriber has paths of a contract for broken."""

    def resolve(self, request: Request, command: ResolveName) -> None:
        self._requests.answer(request, (resolve(self._desk.registry, command.name),))

    def find(self, request: Request, command: FindVariables) -> None:
        limit = max(0, min(command.limit, MANY_MAX))
        variables: list[StatusVariable] = []
        size_bytes, is_complete = 0, True
        pattern = check_pattern(command.pattern)
        for publication in self._desk.registry.matching(pattern, after=command.after):
            size_bytes += len(msgspec.msgpack.encode(publication.variable))
            if len(variables) == limit or size_bytes > ANSWER_BYTES_MAX:
                is_complete = False
                break
            variables.append(publication.variable)
        outcome = FoundOutcome(variables=tuple(variables), is_complete=is_complete)
        self._requests.answer(request, (outcome,))

    def keep_ledger(self, request: Request, command: ReportLedger) -> None:
        """The newest figures of each contract, in memory only, for those who watch."""
        registry = self._desk.registry
        for entry in command.entries:
            number = entry.subscription_id
            found = registry.subscriptions.get(number) or registry.tree.asked.get(number)
            if found is not None and found.record.subscriber == request.endpoint:
                found.ledger = kept_ledger(entry, found.ledger)
        for number in command.impaired:
            self.held_impaired(request.endpoint, number)
        self._requests.answer(request, (DoneOutcome(),))


def _nobody(_subscriber: str, _number: int) -> None:
    """Before the parts that know of paths are there."""
