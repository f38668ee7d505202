"""A broker that finds an older journal than it has written: it starts only with a raised term."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.journal import Journal
from gridstat.broker.records.sqlite_store import SqliteStore
from gridstat.console.cli.broker import plan_of
from gridstat.console.daemons.broker_daemon import BrokerDaemon, BrokerPlan
from gridstat.console.daemons.tree_daemon import TreeDaemon, TreePlan
from gridstat.model.errors import StorageFailed
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "leaf": 'cloud = "c1"\n[[router]]\nname = "e0"\nrole = "edge"\n',
    "root": 'broker = "c1"\nport = 0\n[[child]]\nname = "c2"\n',
}


@pytest.fixture(params=FILES)
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> BrokerPlan | TreePlan:
    """Return the plan of a broker whose journal was removed, and its head was not."""
    certificates = CertificateFolder(tmp_path / "certificates")
    certificates.create_authority()
    certificates.issue(Identity(Role.BROKER, "c1"))
    file, journal = tmp_path / "broker.toml", tmp_path / "journal.sqlite"
    file.write_text(f'certificates = "certificates"\n{FILES[request.param]}')
    written = Journal(SqliteStore(journal))

    async def persist() -> None:
        await written.persist(1, (b"a",))

    asyncio.run(persist())
    written.close()
    journal.unlink()
    return plan_of(file)


def start(plan: BrokerPlan | TreePlan) -> list[bytes]:
    async def run() -> list[bytes]:
        made = BrokerDaemon(plan) if isinstance(plan, BrokerPlan) else TreeDaemon(plan)
        try:
            return made.journal.load()
        finally:
            await made.close()

    return asyncio.run(run())


def test_a_broker_of_a_raised_term_begins_where_its_journal_ends(
    plan: BrokerPlan | TreePlan,
) -> None:
    with pytest.raises(StorageFailed, match="rows 1 to 1 are missing"):
        start(plan)
    assert start(replace(plan, term_min=8)) == []
    assert start(plan) == []
