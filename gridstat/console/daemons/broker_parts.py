"""Parts that the process of every broker has: certificates, journal, listeners."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from gridstat.broker.context import Outside
from gridstat.console.daemons.stand_by import open_journal
from gridstat.model.errors import LinkDown
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.endpoint_signatures import AuthorityVerifier
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.tls import Credentials

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from gridstat.console.daemons.metrics_server import MetricsServer
    from gridstat.console.daemons.stand_by import JournalPlan


class BrokerPartsPlan(Protocol):
    """Settings that the files of all brokers have."""

    @property
    def name(self) -> str: ...
    @property
    def certificates(self) -> Path: ...
    @property
    def journal(self) -> JournalPlan: ...
    @property
    def term_min(self) -> int: ...


class BrokerParts:
    """Credentials, verifier and journal of a broker; the journal is opened last."""

    def __init__(self, plan: BrokerPartsPlan) -> None:
        files = CertificateFolder(plan.certificates).present(Identity(Role.BROKER, plan.name))
        self.credentials = Credentials(files)
        verifier = AuthorityVerifier(lambda: self.credentials.authorities)
        self.journal = open_journal(plan.journal, may_be_older=plan.term_min > 0)
        self.outside = Outside(
            verifier=verifier, wall_clock_ns=time.time_ns, journal_figures=self.journal.figures
        )

    def reloaded(self, metrics: MetricsServer, what_else: str) -> str:
        """Load new certificates and authorities, those of the metrics too, and return a report; all
        other settings need a restart."""
        complaint = self.credentials.refresh()
        taken = f"certificates NOT ({complaint})" if complaint else "certificates"
        taken = ", ".join((taken, *metrics.reload()))
        return f"reloaded: {taken}; {what_else} change by `gridstat cloud`"


async def listening(
    serving: Awaitable[tuple[str, int]], host: str, port: int, *, key: str = "port"
) -> tuple[str, int]:
    """Return the address at which a driver serves; an error names the key of the file to change."""
    try:
        return await serving
    except OSError as error:
        raise LinkDown(
            f"broker cannot listen on {host} port {port}: {error.strerror}",
            hint=f"choose another {key}, or 0 for any free one",
        ) from error
