"""The files that the lab writes are such as the daemons read, and give no one another's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.console.access import load_access
from gridstat.console.config.cloud_file import load_cloud
from gridstat.console.config.router_file import load_router
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Role
from lab.grid_files import OPERATOR, GridFiles
from lab.grid_plan import BROKER, two_ways

if TYPE_CHECKING:
    from pathlib import Path

PLAN = two_ways()
NAMES = [BROKER, *(r.name for r in PLAN.routers), *(p.name for p in PLAN.end_points)]


def written(folder: Path) -> GridFiles:
    hosts = {name: f"10.0.0.{number}" for number, name in enumerate(NAMES, start=1)}
    files = GridFiles(folder, PLAN, hosts, {"grace_s": 5.0})
    files.write()
    return files


def test_the_broker_reads_its_cloud(tmp_path: Path) -> None:
    settings, topology = load_cloud(written(tmp_path).broker_file)
    assert (settings.cloud, settings.host, settings.timing.grace_s) == ("c1", "10.0.0.1", 5.0)
    assert len(topology.routers) == 8
    labels = {channel.label for channel in topology.channels}
    assert len(labels) == 2 * len(PLAN.links)
    assert {"c1/e0→c1/i0", "c1/i0→c1/e0"} <= labels


def test_a_router_reads_who_it_is_and_where_its_broker_is(tmp_path: Path) -> None:
    files = written(tmp_path)
    router = load_router(files.router_file("e0"))
    assert (router.name, router.is_edge) == ("c1/e0", True)
    assert router.brokers == (("10.0.0.1", 7_100),)
    assert router.listen == (files.hosts["e0"], 7_000, 7_001)
    assert not load_router(files.router_file("i0")).is_edge


def test_an_end_point_finds_its_edges_and_has_a_certificate(tmp_path: Path) -> None:
    files = written(tmp_path)
    access = load_access(files.folder("north/pmu-0"))
    assert access.edges == {
        "c1/e0": (files.hosts["e0"], 7_002),
        "c1/e1": (files.hosts["e1"], 7_002),
    }
    assert access.files_of(Role.ENDPOINT, "c1/north/pmu-0").key.exists()


def test_the_operator_can_be_anyone_and_reaches_every_edge(tmp_path: Path) -> None:
    access = load_access(written(tmp_path).folder(OPERATOR))
    assert access.files_of(Role.OPERATOR, "c1/alice").certificate.exists()
    assert sorted(access.edges) == ["c1/e0", "c1/e1", "c1/e2", "c1/e3"]


def test_nobody_is_given_the_key_of_another(tmp_path: Path) -> None:
    files = written(tmp_path)
    for name in NAMES:
        folder = files.folder(name) / "certificates"
        assert len(list(folder.glob("*.key"))) == 1
        assert not CertificateFolder(folder).has_authority
