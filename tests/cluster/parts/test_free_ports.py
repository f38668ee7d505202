"""Ports for daemons that start later: free for both protocols, and each given once."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

import pytest

from gridstat.console import grid_folder
from gridstat.console.grid_folder import free_ports

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"
pytestmark = pytest.mark.cluster


def test_they_differ_and_are_none_that_the_kernel_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    range_file = tmp_path / "range"
    range_file.write_text("32768\t60999\n")
    monkeypatch.setattr(grid_folder, "EPHEMERAL_PORTS", range_file)
    found = free_ports(HOST, 100)
    assert len(set(found)) == 100
    assert not [port for port in found if 32_768 <= port <= 60_999]


@pytest.mark.parametrize("given", ["1024 65535", "10000 65534"])
def test_where_the_kernel_gives_nearly_all_two_who_look_at_once_find_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str
) -> None:
    range_file = tmp_path / "range"
    range_file.write_text(given)
    monkeypatch.setattr(grid_folder, "EPHEMERAL_PORTS", range_file)
    starts = iter((0, 7, 0, 3_000))
    monkeypatch.setattr(random, "randrange", lambda _: next(starts))
    one, other = (free_ports(HOST, 20)[1:] for _ in range(2))
    assert not set(one) & set(other)


def test_too_few_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_folder, "PORT_MAX", grid_folder.PORT_MIN + 3)
    with pytest.raises(OSError, match=r"ports of .* are free"):
        free_ports(HOST, 5)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_one_that_is_taken_is_not_found(
    monkeypatch: pytest.MonkeyPatch, kind: socket.SocketKind
) -> None:
    monkeypatch.setattr(random, "randrange", lambda _: 0)
    first, second = free_ports(HOST, 2)
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind((HOST, first))
        assert free_ports(HOST, 1) == [second]


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        free_ports("192.0.2.1", 1)
