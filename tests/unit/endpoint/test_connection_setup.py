"""Refusals of `connect` before it opens anything, and the names of the package."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import gridstat
from gridstat.endpoint import cloud_link, connection_setup
from gridstat.endpoint.access_folder import open_folder
from gridstat.endpoint.connection_setup import connect
from gridstat.endpoint.edge_address import EdgeAddress
from gridstat.model.errors import (
    CertificateRefused,
    ConfigurationError,
    DeadlinePassed,
    LayoutError,
    LinkDown,
    Misuse,
    NoSuchRouter,
)
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role

if TYPE_CHECKING:
    from pathlib import Path

NAME = "c1/north/pmu-1"
EDGE = "c1/e0@127.0.0.1:7101"


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    folder = CertificateFolder(tmp_path)
    folder.create_authority()
    folder.issue(Identity(Role.ENDPOINT, NAME))
    return tmp_path


@pytest.mark.parametrize("edges", [[], [EDGE] * 3])
def test_an_end_point_attaches_to_one_edge_or_two(edges: list[str]) -> None:
    with pytest.raises(Misuse, match=f"{len(edges)} edge routers"):
        connect(edges, NAME)


def test_two_edges_are_two_routers(certificates: Path) -> None:
    with pytest.raises(Misuse, match="the same edge router twice"):
        connect([EDGE, "c1/e0@127.0.0.2:7101"], NAME, certificates=certificates)


@pytest.mark.parametrize("word", ["timeout_s", "answer_within_s"])
@pytest.mark.parametrize("wait_s", [float("inf"), float("nan"), 1e300])
def test_a_wait_that_no_clock_can_hold_is_refused(
    certificates: Path, word: str, wait_s: float
) -> None:
    wishes: Any = {word: wait_s}
    with pytest.raises(Misuse, match=word):
        connect("c1/e0@127.0.0.1:1", NAME, certificates=certificates, **wishes)


def test_a_name_without_a_certificate_is_refused_with_what_to_do(certificates: Path) -> None:
    with pytest.raises(CertificateRefused) as refused:
        connect(EDGE, "c1/somebody-else", certificates=certificates)
    assert "gridstat certificates" in refused.value.hint


@pytest.mark.parametrize("name", ["", "c1//x", "c1/*", "c1/a b"])
def test_a_name_that_is_none_is_refused(certificates: Path, name: str) -> None:
    with pytest.raises(LayoutError):
        connect(EDGE, name, certificates=certificates)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("192.0.2.1:7101", [("192.0.2.1", 7101)]),
        (["192.0.2.1:7101", "192.0.2.2:7101"], [("192.0.2.1", 7101), ("192.0.2.2", 7101)]),
    ],
)
def test_the_name_services_of_a_broker_and_of_its_stand_by_are_asked(
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: str | list[str],
    asked: list[tuple[str, int]],
) -> None:
    found: list[tuple[str, int]] = []

    async def resolve(
        _: str, __: object, services: list[tuple[str, int]], *, within_s: float
    ) -> tuple[str, int]:
        del within_s
        found.extend(services)
        raise NoSuchRouter("c1/e0")

    monkeypatch.setattr("gridstat.endpoint.connection_setup.resolve", resolve)
    with pytest.raises(NoSuchRouter):
        connect("c1/e0", NAME, certificates=certificates, name_service=written)
    assert found == asked


class NoCloud:
    """Stands for the parts behind a connection; notes how long it may wait for the first edge."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def __call__(self, *_: object) -> NoCloud:
        return self

    def open(self, timeout_s: float) -> None:
        self.waits_s.append(timeout_s)
        raise DeadlinePassed("nobody is there")


def test_the_look_up_of_names_counts_toward_the_time_to_connect(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within: list[float] = []
    takes_s = 0.05

    async def resolve(_: str, __: object, ___: object, *, within_s: float) -> tuple[str, int]:
        within.append(within_s)
        await asyncio.sleep(takes_s)
        return "127.0.0.1", 7101

    cloud = NoCloud()
    monkeypatch.setattr(connection_setup, "resolve", resolve)
    monkeypatch.setattr(connection_setup, "CloudLink", cloud)
    with pytest.raises(DeadlinePassed):
        connect(
            ["c1/e0", "c1/e1"],
            NAME,
            certificates=certificates,
            name_service="127.0.0.1:1",
            timeout_s=2,
        )
    assert all(0 < within_s <= 2 for within_s in within)
    assert cloud.waits_s[0] <= 2 - takes_s


def test_two_edges_are_looked_up_at_the_same_time(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    is_second_asked = asyncio.Event()

    async def resolve(name: str, _: object, __: object, *, within_s: float) -> tuple[str, int]:
        asked.append(name)
        if len(asked) == 2:
            is_second_asked.set()
        await asyncio.wait_for(is_second_asked.wait(), within_s)
        raise NoSuchRouter(name)

    monkeypatch.setattr(connection_setup, "resolve", resolve)
    edges, service = ["c1/e0", "c1/e1"], "127.0.0.1:1"
    with pytest.raises(NoSuchRouter):
        connect(edges, NAME, certificates=certificates, name_service=service, timeout_s=5)
    assert asked == edges


def test_a_resolver_of_the_system_that_does_not_answer_ends_with_the_time_to_connect(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_answered = threading.Event()

    def local_host_toward(_: EdgeAddress) -> str:
        has_answered.wait(20)
        return "127.0.0.1"

    monkeypatch.setattr(connection_setup, "local_host_toward", local_host_toward)
    began_s = time.monotonic()
    try:
        with pytest.raises(DeadlinePassed, match="c1/e0") as refusal:
            connect("c1/e0@edge.example:1", NAME, certificates=certificates, timeout_s=0.05)
    finally:
        has_answered.set()
    assert refusal.value.hint
    assert time.monotonic() - began_s < 10


ACCESS = """
cloud = "c1"
[[edge]]
name = "c1/e0"
host = "127.0.0.1"
port = 7101
"""


def test_a_folder_says_where_edges_are_and_has_the_certificates(certificates: Path) -> None:
    access = certificates / "cloud"
    access.mkdir()
    (access / "access.toml").write_text(f'certificates = ".."\n{ACCESS}', encoding="utf-8")
    found = open_folder(access)
    assert found.edge("c1/e0") == EdgeAddress("c1/e0", "127.0.0.1", 7101)
    assert found.files_of("c1/me").certificate.exists()
    with pytest.raises(Misuse, match="no edge router c1/e9") as unknown:
        connect("c1/e9", NAME, folder=access)
    assert unknown.value.hint == "there are these: c1/e0"
    with pytest.raises(Misuse, match="the folder says"):
        connect("c1/e0", NAME, folder=access, certificates=certificates)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "edge = 7",
        "[[edge]]\nname = 'c1/e0'",
        "\\",
        "[[edge]]\nname = 'c1/e0'\nhost = '::1'\nport = inf",
        "edge = " + "[" * 5_000,
        "port = " + "9" * 5_000,
    ],
)
def test_a_folder_without_a_cloud_is_refused_with_what_to_do(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "access.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"access\.toml") as refused:
        connect("c1/e0", NAME, folder=tmp_path)
    assert "gridstat up" in refused.value.hint


def test_everything_that_the_package_names_is_there() -> None:
    for name in gridstat.__all__:
        assert getattr(gridstat, name) is not None
    assert set(gridstat.__all__) <= set(dir(gridstat))
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = gridstat.conect


@pytest.mark.parametrize(
    ("wishes", "is_forbidden"),
    [({}, True), ({"core_dumps": True}, False), ({"security": "none"}, False)],
)
def test_a_process_with_keys_leaves_no_core_dumps_unless_it_asks_for_them(
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    wishes: dict[str, Any],
    is_forbidden: bool,
) -> None:
    forbidden: list[bool] = []
    monkeypatch.setattr(cloud_link, "forbid_core_dumps", lambda: forbidden.append(True))
    nobody = "c1/e0@127.0.0.1:1"
    with pytest.raises(LinkDown):
        connect(nobody, NAME, certificates=certificates, timeout_s=1.0, **wishes)
    assert bool(forbidden) is is_forbidden
