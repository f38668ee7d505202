"""The present router, as it would be under another schema: an older one, or a newer one.

Its Hello announces the other schema, and it knows no message that came with a later one. Whatever
it is sent and does not know, it prints. Called with its file and the number of its schema.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gridstat.console.config.router_file import load_router
from gridstat.console.daemons.router_daemon import run_router
from gridstat.net.command import session, session_table
from gridstat.net.command.frames import decode_message
from gridstat.net.command.messages import Hello

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message


def main(file: Path, schema_version: int) -> None:
    """Changes what this process says and knows, then routes as ever."""

    def decode(body: bytes) -> Message | None:
        message = decode_message(body)
        if message is not None and message.since <= schema_version:
            return message
        say(f"does not know {msgspec.msgpack.decode(body)['type']}")
        return None

    hello = partial(Hello, schema_version=schema_version)
    setattr(session_table, "Hello", hello)  # noqa: B010 - mypy holds modules to be constant.
    setattr(session, "decode_message", decode)  # noqa: B010
    run_router(partial(load_router, file), on_ready=tell_ready, on_message=say)


def tell_ready(line: dict[str, Any]) -> None:
    say(f"router {line['router']} ready")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
