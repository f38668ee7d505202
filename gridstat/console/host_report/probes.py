"""Asks the machine: by trying where that is possible, since a limit on paper may not hold.

Nothing stays changed; sockets are closed and the scheduling class is put back.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from gridstat.console.config.router_file import load_router
from gridstat.console.host_report.facts import ClockFacts, HostFacts
from gridstat.console.host_report.findings import (
    RECEIVE_BUFFER_BYTES_WANTED,
    SEND_BUFFER_BYTES_WANTED,
)
from gridstat.core._core import seal_backends
from gridstat.model.channel_security import NONE
from gridstat.model.errors import GridStatError

UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
SO_SNDBUFFORCE: Final = 32
SO_RCVBUFFORCE: Final = 33
STATUS_UNSYNCHRONISED: Final = 0x40
STATE_ERROR: Final = 5
SEGMENT_BYTES: Final = 100
SEGMENT_COUNT: Final = 4
TRIAL_S: Final = 1.0


def host_facts() -> HostFacts:
    gso_problem, gro_problem = offload_problems()
    receive_bytes, send_bytes = buffer_bytes()
    release = os.uname()
    return HostFacts(
        kernel=release.release,
        preemption=preemption(release.version),
        cpu_count=len(os.sched_getaffinity(0)),
        receive_buffer_bytes=receive_bytes,
        receive_buffer_bytes_max=_number("/proc/sys/net/core/rmem_max"),
        send_buffer_bytes=send_bytes,
        send_buffer_bytes_max=_number("/proc/sys/net/core/wmem_max"),
        gso_problem=gso_problem,
        gro_problem=gro_problem,
        locked_bytes_max=locked_bytes_max(),
        real_time_problem=real_time_problem(),
        clock=clock_facts(),
        mtu_bytes=interface_mtus(),
        seal_backends=seal_backends(),
        plain_edges=plain_edges(),
    )


def plain_edges(processes: Path = Path("/proc")) -> dict[str, str]:
    """Return the edge routers that run here with plain end-points, as far as their files can be
    read: name and file."""
    found: dict[str, str] = {}
    for process in sorted(processes.glob("[0-9]*")):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            at = words.index("router")
            if not any("gridstat" in word for word in words[:at]):
                continue
            folder = (process / "cwd").readlink()
            for word in words[at + 1 :]:
                if word.endswith(".toml"):
                    plan = load_router(folder / word)
                    if plan.is_edge and plan.endpoint_security == NONE:
                        found[plan.name] = str(folder / word)
        except (OSError, ValueError, GridStatError):
            continue  # It has ended, is no router, or is none of our business.
    return found


def buffer_bytes() -> tuple[int, int]:
    """Return the buffer sizes that a socket gets: by force, as the core requests, and within the
    limit."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        return (
            _granted(
                trial, socket.SO_RCVBUF, by_force=SO_RCVBUFFORCE, wanted=RECEIVE_BUFFER_BYTES_WANTED
            ),
            _granted(
                trial, socket.SO_SNDBUF, by_force=SO_SNDBUFFORCE, wanted=SEND_BUFFER_BYTES_WANTED
            ),
        )


def _granted(trial: socket.socket, option: int, *, by_force: int, wanted: int) -> int:
    try:
        trial.setsockopt(socket.SOL_SOCKET, by_force, wanted)
    except OSError:
        trial.setsockopt(socket.SOL_SOCKET, option, wanted)
    # The kernel answers with twice what it grants, for its own book-keeping.
    return trial.getsockopt(socket.SOL_SOCKET, option) // 2


def offload_problems() -> tuple[str, str]:
    """Send one train of segments over loopback; return the failure, or an empty text."""
    with ExitStack() as stack:
        receiver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(TRIAL_S)
        gro_problem = ""
        try:
            receiver.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        except OSError as error:
            gro_problem = str(error.strerror)
        try:
            segment = struct.pack("=H", SEGMENT_BYTES)
            control = [(socket.IPPROTO_UDP, UDP_SEGMENT, segment)]
            train = [bytes(SEGMENT_BYTES * SEGMENT_COUNT)]
            sender.sendmsg(train, control, 0, receiver.getsockname())
            received, controls, _, _ = receiver.recvmsg(65_536, socket.CMSG_SPACE(4))
        except OSError as error:
            problem = str(error.strerror or "nothing arrived")
            return problem, gro_problem or "not tried, as GSO failed"
        is_train = any(kind == UDP_GRO for _, kind, _ in controls)
        if not gro_problem and not (is_train and len(received) == SEGMENT_BYTES * SEGMENT_COUNT):
            gro_problem = "datagrams arrive one by one"
        return "", gro_problem


def locked_bytes_max() -> int | None:
    """Return how much memory may be locked; None if there is no limit, as for root."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY or os.geteuid() == 0 else soft


def real_time_problem() -> str:
    """Try the lowest real-time priority for a moment."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError as error:
        return str(error.strerror).lower()
    os.sched_setscheduler(0, policy, parameters)
    return ""


def clock_facts() -> ClockFacts | None:
    """Return the state of the kernel's clock; see adjtimex(2)."""
    # struct timex: modes, offset, freq, maxerror, esterror, status, then what we do not need.
    words = (ctypes.c_long * 64)()
    library = ctypes.CDLL(None, use_errno=True)
    state = library.adjtimex(ctypes.byref(words))
    if state < 0:
        return None
    status = ctypes.cast(words, ctypes.POINTER(ctypes.c_int))[_STATUS_INDEX]
    return ClockFacts(
        is_synchronised=state != STATE_ERROR and not status & STATUS_UNSYNCHRONISED,
        error_us_max=words[3],
        error_us_estimated=words[4],
    )


_STATUS_INDEX: Final = 5 * ctypes.sizeof(ctypes.c_long) // ctypes.sizeof(ctypes.c_int)


def interface_mtus() -> dict[str, int]:
    return {
        path.parent.name: _number(str(path))
        for path in sorted(Path("/sys/class/net").glob("*/mtu"))
    }


def preemption(version: str) -> str:
    """Return the kernel's preemption model: the one chosen at boot if known, else the one it was
    built with."""
    if Path("/sys/kernel/realtime").exists():
        return "PREEMPT_RT"
    try:
        chosen = re.search(r"\((\w+)\)", Path("/sys/kernel/debug/sched/preempt").read_text("ascii"))
    except OSError:
        chosen = None
    if chosen is not None:
        return chosen[1]
    built = re.search(r"\bPREEMPT\w*", version)
    return built[0] if built else ""


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text("ascii"))
    except (OSError, ValueError):
        return 0
