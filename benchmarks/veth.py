"""Two network namespaces joined by a veth pair with offload off, so that segments are real packets.

Loopback passes a 64-segment datagram through unsplit; no NIC does. Each namespace is held by a
process that ends when its stdin closes. Without root a user namespace is tried; if that is
forbidden too, `NamespaceError` says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Self

from benchmarks.errors import BenchmarkError
from benchmarks.rig import Place

if TYPE_CHECKING:
    from types import TracebackType

ENDS_HOST, HOPS_HOST = "10.211.0.1", "10.211.0.2"
ENDS_DEVICE, HOPS_DEVICE = "gsbench0", "gsbench1"
COMMAND_S_MAX = 10.0
SIOCETHTOOL = 0x8946
ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO = 0x1F, 0x24, 0x2C


class NamespaceError(BenchmarkError):
    """Error of a machine that permits no namespaces."""


class VethPair:
    """Owner of both namespaces; the ends of a run are in one, its hops in the other."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._is_root = os.geteuid() == 0

    def __enter__(self) -> Self:
        try:
            for program in ("unshare", "nsenter", "ip"):
                if shutil.which(program) is None:
                    raise NamespaceError(f"{program} is missing", hint="util-linux and iproute2")
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def ends(self) -> Place:
        """Return the place of publishers and subscribers."""
        return Place(ENDS_HOST, self._ends_prefix)

    @property
    def hops(self) -> Place:
        """Return the place of routers and floors."""
        return Place(HOPS_HOST, self._hops_prefix)

    def _build(self) -> None:
        first = ["unshare", "--net", "cat"]
        if not self._is_root:
            first = ["unshare", "--user", "--map-root-user", "--net", "cat"]
        ends_pid = self._hold(first)
        self._ends_prefix = self._entering(ends_pid, is_net=True)
        inside_user = () if self._is_root else self._entering(ends_pid, is_net=False)
        hops_pid = self._hold([*inside_user, "unshare", "--net", "cat"])
        self._hops_prefix = (*inside_user, "nsenter", "-t", str(hops_pid), "-n")
        pair = ("type", "veth", "peer", "name", HOPS_DEVICE, "netns", str(hops_pid))
        _run((*self._ends_prefix, "ip", "link", "add", ENDS_DEVICE, *pair))
        self._set_up(self._ends_prefix, ENDS_DEVICE, ENDS_HOST)
        self._set_up(self._hops_prefix, HOPS_DEVICE, HOPS_HOST)

    def _hold(self, argv: list[str]) -> int:
        """Start a process in a new namespace; an echoed line shows that it runs."""
        holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._stack.callback(_release, holder)
        assert holder.stdin is not None
        assert holder.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            holder.stdin.write(b"\n")
            holder.stdin.flush()
        if holder.stdout.readline() != b"\n":
            raise NamespaceError(
                "network namespaces are not allowed here", hint="run as root, or allow user.max_*"
            )
        return holder.pid

    def _entering(self, pid: int, *, is_net: bool) -> tuple[str, ...]:
        user = () if self._is_root else ("-U", "--preserve-credentials")
        return ("nsenter", "-t", str(pid), *user, *(("-n",) if is_net else ()))

    def _set_up(self, prefix: tuple[str, ...], device: str, host: str) -> None:
        _run((*prefix, "ip", "addr", "add", f"{host}/30", "dev", device))
        _run((*prefix, "ip", "link", "set", "dev", device, "gso_max_segs", "1", "up"))
        _run((*prefix, sys.executable, "-m", "benchmarks.veth", device))


def switch_offload_off(device: str) -> None:
    """Do what `ethtool -K DEVICE tso off gso off gro off` does, without ethtool."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in (ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO):
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP16x", device.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def _run(argv: tuple[str, ...]) -> None:
    result = subprocess.run(
        argv, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False
    )
    if result.returncode != 0:
        raise NamespaceError(f"{' '.join(argv)}: {result.stderr.strip()[-300:]}")


def _release(holder: subprocess.Popen[bytes]) -> None:
    assert holder.stdin is not None
    assert holder.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        holder.stdin.close()
    holder.wait(COMMAND_S_MAX)
    holder.stdout.close()


if __name__ == "__main__":
    switch_offload_off(sys.argv[1])
