"""The network of a planned grid: who reaches whom, over which wire, and what a cut takes away."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from lab.errors import LabError
from lab.grid_network import GridNetwork
from lab.grid_plan import EndPointPlan, GridPlan, LinkPlan, Management, RouterPlan
from lab.relay import Direction, LinkFaults
from lab.sockets import open_socket

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster
PATIENCE_S = 20.0


def chain(management: Management = Management.APART) -> GridPlan:
    edges = [RouterPlan(name, is_edge=True) for name in ("e0", "e1")]
    return GridPlan(
        routers=(edges[0], RouterPlan("i0"), edges[1]),
        links=(LinkPlan("e0", "i0"), LinkPlan("i0", "e1")),
        end_points=(EndPointPlan("north/pmu", ("e0", "e1")),),
        management=management,
    )


@pytest.fixture(params=[True, False], ids=["relayed", "direct"])
def network(request: pytest.FixtureRequest) -> Iterator[GridNetwork]:
    with GridNetwork(chain(), is_relayed=request.param) as made:
        yield made


def assert_heard(network: GridNetwork, sender: str, receiver: str) -> None:
    """A datagram comes, and its sender can be answered at the address it came from."""
    with (
        open_socket(network.namespaces[sender]) as ours,
        open_socket(network.namespaces[receiver]) as theirs,
    ):
        theirs.settimeout(PATIENCE_S)
        ours.sendto(b"hello", theirs.getsockname())
        assert theirs.recvfrom(100) == (b"hello", ours.getsockname())


def assert_lost(network: GridNetwork, sender: str, receiver: str, *, wire: str) -> None:
    """Check that a datagram sent during the cut does not arrive before one sent after it."""
    with (
        open_socket(network.namespaces[sender]) as ours,
        open_socket(network.namespaces[receiver]) as theirs,
    ):
        theirs.settimeout(PATIENCE_S)
        ours.sendto(b"during the cut", theirs.getsockname())
        network.heal(wire)
        ours.sendto(b"after it", theirs.getsockname())
        assert theirs.recv(100) == b"after it"


def test_neighbours_and_the_broker_are_reached(network: GridNetwork) -> None:
    for pair in ("e0 i0", "i0 e1", "e1 i0", "north/pmu e0", "e1 north/pmu", "e0 broker"):
        assert_heard(network, *pair.split())
    assert_heard(network, "broker", "i0")


def test_routers_without_a_wire_do_not_reach_each_other(network: GridNetwork) -> None:
    with open_socket(network.namespaces["e0"]) as ours, pytest.raises(OSError, match="unreachable"):
        ours.sendto(b"hello", (network.namespaces["e1"].host, 9))


def test_a_wire_is_cut_both_ways_and_healed(network: GridNetwork) -> None:
    network.cut("e0-i0")
    assert_heard(network, "i0", "e1")
    assert_heard(network, "e0", "broker")
    assert_lost(network, "e0", "i0", wire="e0-i0")
    network.cut("e0-i0")
    assert_lost(network, "i0", "e0", wire="e0-i0")
    assert_heard(network, "e0", "i0")


def test_a_wire_is_cut_one_way(network: GridNetwork) -> None:
    network.cut("north/pmu-e1", direction=Direction.BACKWARD)
    assert_heard(network, "north/pmu", "e1")
    assert_lost(network, "e1", "north/pmu", wire="north/pmu-e1")


def test_cutting_twice_and_healing_twice_is_the_same_as_once(network: GridNetwork) -> None:
    network.cut("e0-i0", direction=Direction.FORWARD)
    network.cut("e0-i0")
    network.heal("e0-i0")
    network.heal("e0-i0")
    assert_heard(network, "e0", "i0")


def test_a_wire_that_is_not_there_is_named(network: GridNetwork) -> None:
    with pytest.raises(LabError, match=r"no .*wire"):
        network.cut("e0-e1")


def test_only_a_relayed_wire_can_be_made_worse() -> None:
    with (
        GridNetwork(chain(), is_relayed=False) as network,
        pytest.raises(LabError, match="is_relayed=True"),
    ):
        network.set_faults("e0-i0", LinkFaults(loss=0.1))


@pytest.mark.parametrize("is_relayed", [True, False])
def test_in_band_the_broker_is_reached_over_the_wires_of_the_channels(is_relayed: bool) -> None:
    with GridNetwork(chain(Management.IN_BAND), is_relayed=is_relayed) as network:
        for name in ("e0", "i0", "e1", "north/pmu"):
            assert_heard(network, name, "broker")
            assert_heard(network, "broker", name)
        network.cut("i0-e1")
        assert_heard(network, "i0", "broker")
        assert_lost(network, "e1", "broker", wire="i0-e1")


def test_a_connection_in_band_survives_a_short_cut() -> None:
    with (
        GridNetwork(chain(Management.IN_BAND)) as network,
        open_socket(network.namespaces["broker"], socket.SOCK_STREAM) as listener,
        open_socket(network.namespaces["e1"], socket.SOCK_STREAM) as client,
    ):
        listener.listen()
        client.settimeout(PATIENCE_S)
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(PATIENCE_S)
            network.cut("e0-i0")
            client.sendall(b"late")
            assert network.counters("e0-i0")[Direction.BACKWARD].is_reconciled
            network.heal("e0-i0")
            assert accepted.recv(100) == b"late"
