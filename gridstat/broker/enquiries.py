"""Requests that change nothing durable: names, variables that match, and ledgers."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from gridstat.broker.name_service import resolve
from gridstat.model.cloud import check_pattern
from gridstat.net.command.endpoint_messages import DoneOutcome, FoundOutcome
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from gridstat.broker.desk import Desk
    from gridstat.broker.requests import Request, Requests
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

    def resolve(self, request: Request, command: ResolveName) -> None:
        self._requests.answer(request, (resolve(self._desk.registry, command.name),))

    def find(self, request: Request, command: FindVariables) -> None:
        limit = max(0, min(command.limit, MANY_MAX))
        matching = self._desk.registry.matching(check_pattern(command.pattern))
        found = [publication.variable for publication in islice(matching, limit + 1)]
        outcome = FoundOutcome(variables=tuple(found[:limit]), is_complete=len(found) <= limit)
        self._requests.answer(request, (outcome,))

    def keep_ledger(self, request: Request, command: ReportLedger) -> None:
        """The newest figures of each contract, in memory only, for those who watch."""
        for entry in command.entries[:MANY_MAX]:
            found = self._desk.registry.subscriptions.get(entry.subscription_id)
            if found is not None and found.record.subscriber == request.endpoint:
                found.ledger = entry
        self._requests.answer(request, (DoneOutcome(),))
