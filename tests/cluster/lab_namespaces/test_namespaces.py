"""Namespaces and links as root, in a user namespace, as a plain user: alike, and gone after."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lab.relay.program
from lab.errors import LabError
from lab.netns import Network, cut_egress, heal_egress, processes_in
from lab.relay import Relay
from lab.relay.program import relay_path
from lab.sockets import open_socket
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.netns import Namespace

pytestmark = pytest.mark.cluster
PATIENCE_S = 20.0
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
WAYS = ["root", "user", "nobody"] if os.geteuid() == 0 else ["user"]
"""Root can try every way; a plain user has but one."""


@pytest.fixture(params=WAYS)
def network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    with contextlib.ExitStack() as stack:
        if request.param == "nobody":
            # A stranger may be kept out of this very folder, so the relay must lie elsewhere.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.chmod(0o755)
            relay_path(folder=folder).chmod(0o755)
            monkeypatch.setattr(lab.relay.program, "BINARIES", folder)
            made = Network(as_user=True, before=NOBODY)
        else:
            made = Network(as_user=request.param == "user")
        yield stack.enter_context(made)


def assert_heard(near: Namespace, far: Namespace) -> None:
    with open_socket(near) as sender, open_socket(far) as receiver:
        receiver.settimeout(PATIENCE_S)
        sender.sendto(b"hello", receiver.getsockname())
        assert receiver.recvfrom(100) == (b"hello", sender.getsockname())


def test_neighbours_hear_each_other(network: Network) -> None:
    near, far = network.add("near"), network.add("far")
    network.join(near, far)
    assert_heard(near, far)
    assert_heard(far, near)


def test_neighbours_hear_each_other_through_a_relay(network: Network) -> None:
    near, far, middle = network.add("near"), network.add("far"), network.add("middle")
    gap = network.join(near, far, middle=middle)
    assert gap is not None
    with Relay(middle.prefix) as relay:
        relay.add_wire("near-far", *gap)
        assert_heard(near, far)
        assert_heard(far, near)


def test_a_link_can_be_cut_in_the_kernel_one_way(network: Network) -> None:
    near, far = network.add("near"), network.add("far")
    network.join(near, far)
    cut_egress(near, "far")
    assert_heard(far, near)
    with open_socket(near) as sender, open_socket(far) as receiver:
        sender.sendto(b"lost", receiver.getsockname())
        heal_egress(near, "far")
        sender.sendto(b"heard", receiver.getsockname())
        receiver.settimeout(PATIENCE_S)
        assert receiver.recv(100) == b"heard"


def test_a_ring_of_many_namespaces_is_built_and_gone_again(network: Network) -> None:
    ring = [network.add(f"n{number}") for number in range(8)]
    for near, far in zip(ring, [*ring[1:], ring[0]], strict=True):
        network.join(near, far)
    assert len({namespace.host for namespace in ring}) == 8
    assert_heard(ring[0], ring[7])
    assert network.close() == []
    assert [processes_in(namespace.inode) for namespace in ring] == [[]] * 8


def test_a_command_runs_inside(network: Network) -> None:
    lone = network.add("lone")
    assert lone.host in lone.run("ip", "-brief", "address")


def test_a_command_that_fails_says_where_and_why(network: Network) -> None:
    lone = network.add("lone")
    with pytest.raises(LabError, match=r"lone: ip link show nothing: .*does not exist"):
        lone.run("ip", "link", "show", "nothing")


def leave_a_process_in_a_network(stack: contextlib.ExitStack) -> None:
    with Network() as network:
        lingering = ["sh", "-c", "echo inside; exec sleep 1000"]
        process = network.add("lone").start(lingering, stdout=subprocess.PIPE)
        stack.enter_context(process)
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"


def test_a_process_that_stays_behind_is_a_complaint() -> None:
    with contextlib.ExitStack() as stack, pytest.raises(LabError, match=r"stayed behind.*\d"):
        leave_a_process_in_a_network(stack)


@pytest.mark.parametrize("way", sorted({"root", "user"} & set(WAYS)))
def test_nothing_is_left_when_the_maker_is_killed(way: str) -> None:
    command = [sys.executable, "-m", "tests.cluster.lab_namespaces.crashing", way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        told = json.loads(maker.stdout.readline())
        assert told["process"] in processes_in(told["inodes"][0])
        maker.kill()

    def complaint() -> str | None:
        left = [processes_in(inode) for inode in told["inodes"]]
        return None if left == [[], []] else f"still there: {left}"

    eventually(complaint)


def test_a_machine_that_allows_no_namespaces_is_told_so() -> None:
    with Network(before=["false"]) as network, pytest.raises(LabError, match="user namespaces"):
        network.add("lone")


class EndedAlready(subprocess.Popen[bytes]):
    """A process that has ended before anybody could write to it."""

    def __init__(self, argv: Sequence[str], **options: Any) -> None:
        super().__init__(argv, **options)
        self.wait()


def test_a_machine_that_refuses_at_once_is_told_so_and_nothing_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Network(before=["false"]) as network, monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", EndedAlready)
        with pytest.raises(LabError, match="user namespaces"):
            network.add("lone")


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LabError, match=r"unshare is missing\nhint: .*util-linux"), Network():
        pass
