"""Where a daemon serves its metrics: loopback, or another address with TLS and client certificates.

Metrics name every variable, subscriber and path of a cloud, so no stranger may read them.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.console.config.config_errors import complaint
from gridstat.console.config.toml_file import Section, beside
from gridstat.model.errors import CertificateRefused

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK: Final = "127.0.0.1"


class MetricsTlsSection(Section):
    """`[metrics_tls]`: the server's certificate and key, and the authority of its clients."""

    certificate: str
    key: str
    client_authority: str


@dataclass(frozen=True, slots=True)
class MetricsTls:
    """Files of a metrics server that answers only clients with a certificate."""

    certificate: Path
    key: Path
    client_authority: Path

    def context(self) -> ssl.SSLContext:
        """Return the server's context; raises `CertificateRefused` if a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # A resumed session would pass by the check of certificates.
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(cafile=self.client_authority)
        except (ssl.SSLError, OSError) as error:
            raise CertificateRefused(
                f"the files of [metrics_tls] cannot be used: {error}",
                hint="certificate, key and client_authority are PEM files, named from this file's "
                "folder",
            ) from error
        return context


def metrics_tls(
    path: Path, host: str | None, port: int | None, section: MetricsTlsSection | None
) -> MetricsTls | None:
    """Return the files of a daemon's metrics server; refuse an address that is open to anybody."""
    if port is None and (host is not None or section is not None):
        key = "metrics_tls" if host is None else "metrics_host"
        raise complaint(
            str(path), key, "there is no metrics_port", hint="write metrics_port, or leave it out"
        )
    if host is not None and section is None and not ipaddress.ip_address(host).is_loopback:
        raise complaint(
            str(path),
            "metrics_host",
            f'"{host}" can be reached from other machines, and anybody could read the metrics',
            hint="write [metrics_tls] with certificate, key and client_authority, or leave "
            f"metrics_host out: metrics are then served on {LOOPBACK}",
        )
    if section is None:
        return None
    return MetricsTls(
        certificate=beside(path, section.certificate),
        key=beside(path, section.key),
        client_authority=beside(path, section.client_authority),
    )
