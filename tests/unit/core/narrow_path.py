"""A hop inside a network namespace of its own, whose loopback is narrower than the channel thinks.

Run as a program by `test_narrow_path.py`; needs no privilege beyond user namespaces, and prints
the counters as JSON.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import sys

from tests.protocol.grids import datagram, event
from tests.unit.core.running import SOURCE, eventually, hop

CLONE_NEWUSER = 0x1000_0000
CLONE_NEWNET = 0x4000_0000
SIOCSIFFLAGS = 0x8914
SIOCSIFMTU = 0x8922
IFF_UP = 1
STAMP_NS = 1_700_000_000_000_000_000


def enter_namespace(mtu_bytes: int) -> None:
    """Leave the machine's network for one with nothing but a narrow loopback."""
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWUSER | CLONE_NEWNET
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFMTU, struct.pack("16si12x", b"lo", mtu_bytes))
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def main(mtu_bytes: int, events: int) -> None:
    """Send so many events of 24 bytes in one arrival; print the counters."""
    enter_namespace(mtu_bytes)
    with hop() as made:
        made.core.commit([made.row(7)])
        made.core.start()
        sizes = []
        delivered = 0
        for turn in range(2):
            first = turn * events
            packed = [event(7, STAMP_NS + (first + at) * 1_000) for at in range(events)]
            for at in range(0, events, 30):
                raw = datagram(SOURCE, *packed[at : at + 30])
                made.publisher.sendto(raw, (made.host, made.ports[0]))
            eventually(made.settled(first + events))
            while delivered < first + events:
                received = made.subscribers[0].recv(65_536)
                sizes.append(len(received))
                delivered += (struct.unpack_from(">H", received, 2)[0] - 16) // 24
        told = made.core.channel_counters(1) | {"delivered": delivered, "last_bytes": sizes[-1]}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
