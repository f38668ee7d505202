"""A broker that cannot use its own certificates ends and says so; it waits for databases only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gridstat.console.cli.broker import plan_of
from gridstat.console.daemons.broker_daemon import BrokerDaemon, BrokerPlan
from gridstat.console.daemons.stand_by import in_charge
from gridstat.console.daemons.tree_daemon import TreeDaemon
from gridstat.model.errors import CertificateRefused
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role

if TYPE_CHECKING:
    from pathlib import Path

BROKER = Identity(Role.BROKER, "c1")
FILES = {
    "leaf": 'cloud = "c1"\n[[router]]\nname = "e0"\nrole = "edge"\n',
    "root": 'broker = "c1"\nport = 0\n[[child]]\nname = "c2"\n',
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("spoilt", ["certificate", "key", "authority"])
@pytest.mark.parametrize("content", [None, b"no certificate at all"], ids=["missing", "garbage"])
def test_a_broker_without_a_certificate_that_can_be_used_ends(
    tmp_path: Path, kind: str, spoilt: str, content: bytes | None
) -> None:
    certificates = CertificateFolder(tmp_path / "certificates")
    certificates.create_authority()
    certificates.issue(BROKER)
    path: Path = getattr(certificates.files(BROKER), spoilt)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    file = tmp_path / "broker.toml"
    file.write_text(f'certificates = "certificates"\n{FILES[kind]}')
    plan = plan_of(file)

    def make() -> BrokerDaemon | TreeDaemon:
        return BrokerDaemon(plan) if isinstance(plan, BrokerPlan) else TreeDaemon(plan)

    async def run() -> None:
        await in_charge(make, asyncio.Event(), waits=pytest.fail)

    with pytest.raises(CertificateRefused, match=path.name) as refused:
        asyncio.run(run())
    assert refused.value.hint
    assert not (tmp_path / "journal.sqlite").exists(), "no journal is opened for nothing"
