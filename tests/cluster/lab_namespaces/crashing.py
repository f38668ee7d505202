"""Program that builds a network with a process in it, prints its facts, and waits to be killed."""

from __future__ import annotations

import json
import subprocess
import sys

from lab.netns import Network


def main(as_user: bool) -> None:
    with Network(as_user=as_user) as network:
        near, far = network.add("near"), network.add("far")
        network.join(near, far)
        process = near.start(["sh", "-c", "echo inside; exec sleep 1000"], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"
        told = {"inodes": [near.inode, far.inode], "process": process.pid}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1] == "user")
