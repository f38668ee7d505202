"""Authorities that are added and removed while a cloud runs; SIGHUP makes every daemon read them.

Each daemon has a copy of `ca.pem` with all authorities that it trusts. The second authority of
these tests issues certificates to end-points only.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.connection_setup import connect
from gridstat.model.errors import CertificateRefused
from gridstat.model.status import BuiltinType
from gridstat.net.command.certificate_folder import CertificateFolder, write_whole
from gridstat.net.command.identity import Identity, Role
from lab.grid_plan import BROKER
from tests.cluster.end_points.local_cloud import LocalCloud
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    with LocalCloud(tmp_path / "cloud") as running:
        yield running


class TrustedAuthorities:
    """The first authority of a cloud, which issued all daemons' certificates, and a second one."""

    def __init__(self, cloud: LocalCloud, folder: Path) -> None:
        self._cloud = cloud
        self.second = CertificateFolder(folder)
        self.second.create_authority()
        self._first_pem = (cloud.certificates / "ca.pem").read_bytes()
        self._second_pem = (folder / "ca.pem").read_bytes()

    def issue(self, name: str) -> Path:
        """Issue a certificate of the second authority to an end-point that trusts the first."""
        files = self.second.issue(Identity(Role.ENDPOINT, name))
        own = self.second.path / name.replace("/", "-")
        own.mkdir()
        files.key.rename(own / files.key.name)
        files.certificate.rename(own / files.certificate.name)
        write_whole(own / "ca.pem", self._first_pem)
        return own

    def trust(self, *daemons: str, second: bool) -> None:
        """Write the authorities of some daemons or of all, and let the daemons read them."""
        pem = self._first_pem + (self._second_pem if second else b"")
        for name in daemons or self._cloud.hosts:
            write_whole(self._cloud.files.folder(name) / "certificates" / "ca.pem", pem)
            self._reload(name)

    def _reload(self, name: str) -> None:
        before = self._cloud.errors_of(name).count("reloaded: certificates")
        self._cloud.signal(name, signal.SIGHUP)

        def complaint() -> str | None:
            errors = self._cloud.errors_of(name)
            return None if errors.count("reloaded: certificates") > before else errors

        eventually(complaint)


def test_after_sighup_a_new_authority_is_trusted_and_a_removed_one_is_refused(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    authorities = TrustedAuthorities(cloud, tmp_path / "second")
    own = {name: authorities.issue(name) for name in ("c1/early", "c1/timely", "c1/late")}
    edges = [cloud.edge("e0")]
    with pytest.raises(CertificateRefused):
        connect(edges, "c1/early", certificates=own["c1/early"], timeout_s=5.0)
    authorities.trust(second=True)
    with connect(edges, "c1/timely", certificates=own["c1/timely"], timeout_s=30.0) as grid:
        assert grid.publish("value", BuiltinType.FLOAT64, rate=1).name == "c1/timely/value"
        authorities.trust(second=False)
        with pytest.raises(CertificateRefused):
            connect(edges, "c1/late", certificates=own["c1/late"], timeout_s=5.0)
    with cloud.connect("c1/known", ("e0",)) as grid:
        assert grid.is_connected


def test_after_sighup_the_broker_itself_refuses_a_removed_authority(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    """The edges still trust the removed authority here: the broker decides for itself."""
    authorities = TrustedAuthorities(cloud, tmp_path / "second")
    own = {name: authorities.issue(name) for name in ("c1/timely", "c1/late")}
    authorities.trust(second=True)
    edges = [cloud.edge("e0")]
    connect(edges, "c1/timely", certificates=own["c1/timely"], timeout_s=30.0).close()
    authorities.trust(BROKER, second=False)
    with pytest.raises(CertificateRefused, match="not signed by the grid's authority"):
        connect(edges, "c1/late", certificates=own["c1/late"], timeout_s=5.0)
