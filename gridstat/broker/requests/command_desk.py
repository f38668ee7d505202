"""Which part of the broker does what an end-point asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridstat.net.command.endpoint_messages import (
    Attach,
    ChangePublication,
    ChangeSubscription,
    Detach,
    FindVariables,
    Publish,
    ReportLedger,
    ResolveName,
    Subscribe,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.flooding_messages import HearFlooded

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.requests.attachments import Attachments
    from gridstat.broker.requests.contract_changes import ContractChanges
    from gridstat.broker.requests.enquiries import Enquiries
    from gridstat.broker.requests.flooded_hearing import FloodedHearing
    from gridstat.broker.requests.publication_changes import PublicationChanges
    from gridstat.broker.requests.publications import Publications
    from gridstat.broker.requests.requests import Request
    from gridstat.broker.requests.subscriptions import Subscriptions
    from gridstat.net.command.authority import CertificateFacts
    from gridstat.net.command.endpoint_messages import EndPointCommand


@dataclass(frozen=True, slots=True)
class CommandDesk:
    """`joins` says whether a request goes on that was begun before the broker's last start."""

    attachments: Attachments
    subscriptions: Subscriptions
    contract_changes: ContractChanges
    publications: Publications
    publication_changes: PublicationChanges
    enquiries: Enquiries
    hearing: FloodedHearing
    joins: Callable[[Request], bool]

    def do(
        self,
        edge: str,
        request: Request,
        command: EndPointCommand,
        facts: CertificateFacts | None,
    ) -> None:
        """Raises what refuses it."""
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
            case FindVariables() | ResolveName() | ReportLedger() | HearFlooded():
                self._enquire(request, command)

    def _enquire(
        self, request: Request, command: FindVariables | ResolveName | ReportLedger | HearFlooded
    ) -> None:
        match command:
            case FindVariables():
                self.enquiries.find(request, command)
            case ResolveName():
                self.enquiries.resolve(request, command)
            case ReportLedger():
                self.enquiries.keep_ledger(request, command)
            case HearFlooded():
                self.hearing.hear(request, command)
