"""Sockets that belong to a namespace and are used from outside of it.

A child enters the namespace, opens a socket there, and hands it over; run as a program, this file
is that child.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.netns import Namespace

COMMAND_S_MAX = 20.0


def open_socket(
    namespace: Namespace, kind: socket.SocketKind = socket.SOCK_DGRAM, *, port: int = 0
) -> socket.socket:
    """Open a socket in the namespace, bound to its address."""
    # Root can enter any namespace directly, also one of another user.
    enter = ("nsenter", "-n", "-t", str(namespace.holder_pid))
    prefix = enter if os.geteuid() == 0 else namespace.prefix
    ours, theirs = socket.socketpair()
    with ours, theirs:
        subprocess.run(
            [*prefix, sys.executable, "-S", "-E", __file__, kind.name, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            timeout=COMMAND_S_MAX,
            check=True,
        )
        _, (descriptor, *_), _, _ = socket.recv_fds(ours, 1, 1)
    opened = socket.socket(fileno=descriptor)
    opened.bind((namespace.host, port))
    return opened


def main(kind: str, descriptor: int) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SocketKind[kind]) as opened,
        socket.socket(fileno=descriptor) as door,
    ):
        socket.send_fds(door, [b"."], [opened.fileno()])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
