"""Dispatch of the commands of end-points to the parts of the broker that decide them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridstat.net.command.endpoint_messages import (
    Attach,
    ChangePublication,
    ChangeSubscription,
    Detach,
    FindVariables,
    ListenToFloods,
    Publish,
    ReportLedger,
    ResolveName,
    Subscribe,
    Unpublish,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.floods.flood_listeners import FloodListeners
    from gridstat.broker.requests.contract_changes import ContractChanges
    from gridstat.broker.requests.endpoint_attachments import EndPointAttachments
    from gridstat.broker.requests.publication_changes import PublicationChanges
    from gridstat.broker.requests.publications import Publications
    from gridstat.broker.requests.queries import Queries
    from gridstat.broker.requests.request_intake import Request
    from gridstat.broker.requests.subscriptions import Subscriptions
    from gridstat.net.command.endpoint_messages import EndPointCommand
    from gridstat.net.command.endpoint_signatures import CertificateFacts


@dataclass(frozen=True, slots=True)
class CommandDispatcher:
    """`joins` returns whether a request continues one from before the broker's last start."""

    attachments: EndPointAttachments
    subscriptions: Subscriptions
    contract_changes: ContractChanges
    publications: Publications
    publication_changes: PublicationChanges
    queries: Queries
    flood_listeners: FloodListeners
    joins: Callable[[Request], bool]

    def dispatch(
        self,
        edge: str,
        request: Request,
        command: EndPointCommand,
        facts: CertificateFacts | None,
    ) -> None:
        """Decide a command, or raise the error that refuses it."""
        if self.joins(request):
            return
        match command:
            case Subscribe():
                self.subscriptions.subscribe(request, command)
            case Unsubscribe():
                self.contract_changes.unsubscribe(request, command)
            case ChangeSubscription():
                self.contract_changes.change(request, command)
            case Publish():
                self.publications.publish(request, command)
            case Unpublish():
                self.publications.unpublish(request, command)
            case ChangePublication():
                self.publication_changes.change(request, command)
            case Attach():
                assert facts is not None
                self.attachments.attach(request, edge, command, facts)
            case Detach():
                self.attachments.detach(request, command)
            case FindVariables() | ResolveName() | ReportLedger() | ListenToFloods():
                self._dispatch_query(request, command)

    def _dispatch_query(
        self, request: Request, command: FindVariables | ResolveName | ReportLedger | ListenToFloods
    ) -> None:
        match command:
            case FindVariables():
                self.queries.find(request, command)
            case ResolveName():
                self.queries.resolve(request, command)
            case ReportLedger():
                self.queries.keep_ledger(request, command)
            case ListenToFloods():
                self.flood_listeners.listen(request, command)
