"""Ports for daemons that start later: free for both protocols, and given to nobody else."""

from __future__ import annotations

import random
import socket

import pytest

from gridstat.console.grid_folder import EPHEMERAL_PORTS, free_ports

HOST = "127.0.0.1"
pytestmark = pytest.mark.cluster


def test_they_differ_and_are_none_that_the_kernel_gives() -> None:
    lowest, highest = map(int, EPHEMERAL_PORTS.read_text().split())
    found = free_ports(HOST, 100)
    assert len(set(found)) == 100
    assert not [port for port in found if lowest <= port <= highest]


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
