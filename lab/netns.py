"""Networks of namespaces on one machine, as root or, alike, as a plain user in a user namespace.

Each namespace is held by a process that ends when its input closes, and has no name in the file
system: if the process that made the namespace dies, nothing is left. Links have no addresses of
their own; every namespace has one, and a route to each neighbour over their one link.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from lab.errors import LabError
from lab.relay.program import relay_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NETWORK = "10.77"
NAMESPACES_MAX = 1_000
COMMAND_S_MAX = 20.0
PROGRAMS = {"unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux"} | {
    "ip": "iproute2",
    "tc": "iproute2",
}
HOLDER = (
    # Without version 6 a link carries only the frames that its two ends send.
    "for at in all default; do echo 1 > /proc/sys/net/ipv6/conf/$at/disable_ipv6; done 2>&-; "
    "ip link set lo up && exec cat"
)
DROP_ALL = "1,6 0 0 2"
"""Classic BPF: one instruction that returns TC_ACT_SHOT."""


class Namespace:
    """One network stack with one address; processes in it end with this process at the latest."""

    def __init__(
        self, name: str, host: str, *, holder: subprocess.Popen[bytes], enter: Sequence[str]
    ) -> None:
        self.name = name
        self.host = host
        self.holder_pid = holder.pid
        self.inode = os.stat(f"/proc/{holder.pid}/ns/net").st_ino
        self.devices: dict[str, str] = {}
        """The device of the link to each neighbour."""
        self.prefix = (*enter, "-n", "-t", str(holder.pid))
        """Prefix that runs a command in the namespace."""
        self._holder = holder

    def start(
        self,
        argv: Sequence[str | Path],
        *,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process with its own pid; it is killed when the calling thread ends."""
        return subprocess.Popen(
            [*self.prefix, "setpriv", "--pdeathsig", "KILL", *map(str, argv)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
        )

    def run(self, *argv: str | Path, feed: str = "") -> str:
        """Run a short command in the namespace and return its output; raise if it fails."""
        result = subprocess.run(
            [*self.prefix, *map(str, argv)],
            input=feed,
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
        if result.returncode != 0:
            raise LabError(f"{self.name}: {' '.join(map(str, argv))}: {result.stderr[-300:]}")
        return result.stdout

    def configure(self, commands: Sequence[str]) -> None:
        """Run many lines of `ip` in one process."""
        self.run("ip", "-batch", "-", feed="\n".join(commands) + "\n")

    def processes(self) -> list[int]:
        """Return the pids of all processes in the namespace except the holder."""
        return [pid for pid in processes_in(self.inode) if pid != self.holder_pid]

    def release(self) -> None:
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait(COMMAND_S_MAX)
        self._holder.stdout.close()


class Network:
    """Owner of namespaces and links while the `with` block lasts; reports processes left behind.

    With `as_user` it makes a user namespace even for root, so that both ways can be tested;
    `before` stands before every command, to run the command as another user.
    """

    def __init__(self, *, as_user: bool | None = None, before: Sequence[str] = ()) -> None:
        is_root = os.geteuid() == 0 if as_user is None else not as_user
        user = () if is_root else ("-U", "--preserve-credentials")
        self._is_root = is_root
        self._before = tuple(before)
        self._enter = (*before, "nsenter", *user)
        self._namespaces: list[Namespace] = []
        self._link_count = 0

    def __enter__(self) -> Self:
        for program, package in PROGRAMS.items():
            if shutil.which(program) is None:
                raise LabError(f"{program} is missing", hint=f"Debian: apt-get install {package}")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        left = self.close()
        if left and kind is None:
            raise LabError(f"processes stayed behind in a namespace: {left}")

    def add(self, name: str) -> Namespace:
        """Add a namespace with its own address."""
        number = len(self._namespaces) + 1
        if number > NAMESPACES_MAX:
            raise LabError(f"a lab has at most {NAMESPACES_MAX} namespaces")
        holder = self._hold()
        host = f"{NETWORK}.{number // 250}.{number % 250 + 1}"
        made = Namespace(name, host, holder=holder, enter=self._enter)
        self._namespaces.append(made)
        made.configure([f"addr add {host}/32 dev lo"])
        return made

    def join(
        self, near: Namespace, far: Namespace, *, middle: Namespace | None = None
    ) -> tuple[str, str] | None:
        """Link two namespaces and add a route from each to the other's address.

        With `middle` the link has a gap in that namespace for a relay to bridge; the result is
        the pair of devices at the near and far side of the gap.
        """
        number = self._link_count
        self._link_count += 1
        device = f"link{number}"
        macs = f"02:77:{number >> 8:02x}:{number & 255:02x}:00"
        near_mac, far_mac = f"{macs}:00", f"{macs}:01"
        gap = None
        if middle is None:
            near.configure([_pair(device, near_mac, device, far_mac, far)])
        else:
            gap = (f"{device}n", f"{device}f")
            near.configure([_pair(device, near_mac, gap[0], None, middle)])
            far.configure([_pair(device, far_mac, gap[1], None, middle)])
            middle.configure([f"link set {at} up" for at in gap])
            _make_plain(middle, *gap)
        _plug_in(near, device, far, far_mac)
        _plug_in(far, device, near, near_mac)
        return gap

    def close(self) -> list[int]:
        """Remove everything; return the pids of the processes that were left behind."""
        left: list[int] = []
        while self._namespaces:
            last = self._namespaces.pop()
            left += last.processes()
            last.release()
        return left

    def _hold(self) -> subprocess.Popen[bytes]:
        if self._is_root:
            make: tuple[str, ...] = (*self._before, "unshare", "--net")
        elif not self._namespaces:
            make = (*self._before, "unshare", "--user", "--map-root-user", "--net")
        else:
            make = (*self._enter, "-t", str(self._namespaces[0].holder_pid), "unshare", "--net")
        holder = subprocess.Popen(
            [*make, "sh", "-c", HOLDER],
            bufsize=0,  # A buffer would write to the ended process again when it is closed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            holder.stdin.write(b"\n")
        if holder.stdout.readline() != b"\n":  # The echo shows that the holder runs.
            holder.stdin.close()
            holder.stdout.close()
            holder.wait()
            raise LabError(
                "network namespaces are not allowed here",
                hint="run as root, or allow user namespaces (sysctl user.max_user_namespaces)",
            )
        return holder


def cut_egress(namespace: Namespace, neighbour: str) -> None:
    """Drop all frames that leave over the link to a neighbour, in the kernel, without a relay."""
    device = namespace.devices[neighbour]
    namespace.run("tc", "qdisc", "replace", "dev", device, "clsact")
    namespace.run(
        *("tc", "filter", "replace", "dev", device, "egress", "pref", "1", "handle", "1"),
        *("bpf", "da", "bytecode", DROP_ALL),
    )


def heal_egress(namespace: Namespace, neighbour: str) -> None:
    """Undo `cut_egress`."""
    namespace.run("tc", "qdisc", "del", "dev", namespace.devices[neighbour], "clsact")


def processes_in(inode: int) -> list[int]:
    """Return the processes whose network namespace has this inode."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            # Processes start and end meanwhile, and a plain user cannot read those of other users.
            with contextlib.suppress(OSError):
                if (entry / "ns" / "net").stat().st_ino == inode:
                    found.append(int(entry.name))
    return found


def _pair(device: str, mac: str, peer: str, peer_mac: str | None, where: Namespace) -> str:
    address = f"address {peer_mac} " if peer_mac else ""
    return (
        f"link add {device} address {mac} type veth "
        f"peer name {peer} {address}netns {where.holder_pid}"
    )


def _plug_in(namespace: Namespace, device: str, neighbour: Namespace, mac: str) -> None:
    """Configure a device with the neighbour's MAC, so that a lossy link needs no ARP."""
    namespace.configure(
        [
            f"link set {device} up",
            f"neigh add {neighbour.host} lladdr {mac} dev {device} nud permanent",
            f"route add {neighbour.host}/32 dev {device} src {namespace.host}",
        ]
    )
    _make_plain(namespace, device)
    namespace.devices[neighbour.name] = device


def _make_plain(namespace: Namespace, *devices: str) -> None:
    namespace.run(relay_path(), "plain", *devices)
