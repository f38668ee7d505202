"""SIGHUP of each daemon with a metrics listener reads its authority and certificate again."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from gridstat.console.cli.broker import plan_of
from gridstat.console.config.metrics_tls import MetricsTls
from gridstat.console.config.router_file import load_router
from gridstat.console.daemons.broker_daemon import BrokerDaemon, BrokerPlan
from gridstat.console.daemons.metrics_server import MetricsServer
from gridstat.console.daemons.router_daemon import RouterDaemon
from gridstat.console.daemons.tree_daemon import TreeDaemon
from gridstat.net.command.certificate_folder import CertificateFolder, write_whole
from gridstat.net.command.identity import Identity, Role
from tests.protocol.command_parties import until

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeAlias

    from gridstat.net.command.certificate_folder import CertificateFiles

    Daemon: TypeAlias = BrokerDaemon | TreeDaemon | RouterDaemon

TLS = """
[metrics_tls]
certificate = "server.pem"
key = "server.key"
client_authority = "clients.pem"
"""
FILES = {
    "leaf": 'cloud = "c1"\nport = 0\nname_service_port = 0\nmetrics_port = 0\n'
    '[[router]]\nname = "e0"\nrole = "edge"\n',
    "root": 'broker = "c1"\nport = 0\nmetrics_port = 0\n[[child]]\nname = "c2"\n',
    "router": 'name = "c1/e0"\nrole = "edge"\nmetrics_port = 0\n'
    '[broker]\naddresses = ["127.0.0.1:1"]\n',
}
MONITOR = Identity(Role.OPERATOR, "c1/monitor")
ASKED = b"GET /health HTTP/1.1\r\n\r\n"


class Files:
    """Files of a daemon, and two authorities of those who read its metrics."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.own = CertificateFolder(path / "certificates")
        self.own.create_authority()
        for identity in (Identity(Role.BROKER, "c1"), Identity(Role.ROUTER, "c1/e0")):
            self.own.issue(identity)
        self.first, self.second = (self._authority(name) for name in ("first", "second"))
        self.serve_as(self.first)
        self.trust(self.first)

    def _authority(self, name: str) -> CertificateFolder:
        found = CertificateFolder(self.path / name)
        found.create_authority()
        found.issue(MONITOR)
        found.issue(Identity(Role.BROKER, "c1"))
        return found

    def serve_as(self, authority: CertificateFolder) -> None:
        files = authority.files(Identity(Role.BROKER, "c1"))
        write_whole(self.path / "server.pem", files.certificate.read_bytes())
        write_whole(self.path / "server.key", files.key.read_bytes())

    def trust(self, authority: CertificateFolder) -> None:
        write_whole(self.path / "clients.pem", self.files(authority).authority.read_bytes())

    def files(self, authority: CertificateFolder) -> CertificateFiles:
        return authority.files(MONITOR)

    async def health(
        self, address: tuple[str, int], client: CertificateFolder, server: CertificateFolder
    ) -> bytes:
        """Return the answer to a client of one authority, that trusts a server of another."""
        context = ssl.create_default_context(cafile=str(self.files(server).authority))
        context.check_hostname = False
        context.load_cert_chain(self.files(client).certificate, self.files(client).key)
        with suppress(ssl.SSLError, ConnectionError):
            reader, writer = await asyncio.open_connection(*address, ssl=context)
            try:
                writer.write(ASKED)
                return await reader.read()
            finally:
                writer.transport.abort()
        return b""


def daemon_of(kind: str, path: Path) -> Daemon:
    file = path / "daemon.toml"
    file.write_text(f'certificates = "certificates"\n{FILES[kind]}{TLS}')
    if kind == "router":
        return RouterDaemon(load_router(file))
    plan = plan_of(file)
    return BrokerDaemon(plan) if isinstance(plan, BrokerPlan) else TreeDaemon(plan)


def reloaded(daemon: Daemon, path: Path) -> str:
    if isinstance(daemon, RouterDaemon):
        return daemon.reload(load_router(path / "daemon.toml"))
    return daemon.reload()


@pytest.mark.parametrize("kind", FILES)
def test_after_sighup_the_metrics_are_for_the_new_authority_alone(
    tmp_path: Path, kind: str
) -> None:
    files = Files(tmp_path)
    first, second = files.first, files.second

    async def run() -> None:
        daemon = daemon_of(kind, tmp_path)
        try:
            ready = await daemon.start()
            host, port = ready["metrics"]
            address = str(host), int(port)
            assert b" 200 OK" in await files.health(address, first, first)
            assert await files.health(address, second, first) == b""

            files.trust(second)
            files.serve_as(second)
            text = reloaded(daemon, tmp_path)
            assert text.startswith("reloaded: certificates, metrics certificates")
            assert await files.health(address, first, second) == b"", "a removed authority"
            assert await files.health(address, second, first) == b"", "a renewed certificate"
            assert b" 200 OK" in await files.health(address, second, second)

            (tmp_path / "clients.pem").write_bytes(b"nothing")
            assert "metrics certificates NOT (" in reloaded(daemon, tmp_path)
            assert b" 200 OK" in await files.health(address, second, second)
        finally:
            await daemon.close()

    asyncio.run(run())


def test_a_handshake_under_the_old_authority_ends_at_a_reload(tmp_path: Path) -> None:
    files = Files(tmp_path)

    async def run() -> None:
        server = MetricsServer(lambda: pytest.fail("no page is asked for"), health=lambda: "")
        own = (tmp_path / name for name in ("server.pem", "server.key", "clients.pem"))
        address = await server.start("127.0.0.1", 0, tls=MetricsTls(*own))
        try:
            context = ssl.create_default_context(cafile=str(files.files(files.first).authority))
            context.check_hostname = False
            mine = files.files(files.first)
            context.load_cert_chain(mine.certificate, mine.key)
            reader, writer = await asyncio.open_connection(*address, ssl=context)
            await until(lambda: server.counters.pending == 1)
            files.trust(files.second)
            server.reload()
            with suppress(ConnectionError, ssl.SSLError):
                writer.write(ASKED)
                assert await reader.read() == b""
            writer.transport.abort()
        finally:
            await server.close()

    asyncio.run(run())
