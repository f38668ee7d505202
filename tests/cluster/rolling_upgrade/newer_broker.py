"""A broker of the schema after the present one: every message has a field more, and there is a new
one, which it says to every router that reports. What it says of it, it prints."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from gridstat.broker.leaf_broker import LeafBroker
from gridstat.console.daemons import broker_daemon
from gridstat.net.command import frames, session_table
from gridstat.net.command.machine import Received, Send
from gridstat.net.command.messages import SCHEMA_VERSION, Hello, ReportRouter, Struct

if TYPE_CHECKING:
    from gridstat.net.command.machine import Event, Instruction
    from gridstat.net.command.messages import Message

NEWER = SCHEMA_VERSION + 1


class Advice(Struct, frozen=True):
    """Message of the next schema to routers."""

    since: ClassVar[int] = NEWER

    router: str


class NewerBroker(LeafBroker):
    """Broker that sends Advice to every router; the session filters it by schema."""

    def handle(self, event: Event, now_ns: int) -> list[Instruction]:
        said = super().handle(event, now_ns)
        match event:
            case Received(peer, ReportRouter()):
                return [*said, Send(peer, cast("Message", Advice(router=peer)))]
            case _:
                return said


def newer_body(value: object) -> bytes:
    """Return the body of a message with an unknown field in it and in all its parts."""
    if isinstance(value, Advice):
        say(f"advised {value.router}")
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    return msgspec.msgpack.encode(with_a_field_more(plain))


def with_a_field_more(value: Any) -> Any:
    match value:
        case dict() if "type" in value:
            kept = {key: with_a_field_more(part) for key, part in value.items()}
            return {**kept, "added_later": {"why": "to be ignored"}}
        case list() | tuple():
            return [with_a_field_more(part) for part in value]
        case _:
            return value


def tell_ready(line: dict[str, Any]) -> None:
    say(f"broker {line['broker']} ready")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    newer_hello = partial(Hello, schema_version=NEWER)
    setattr(session_table, "Hello", newer_hello)  # noqa: B010 - mypy holds modules to be constant.
    setattr(frames, "encode_body", newer_body)  # noqa: B010
    setattr(broker_daemon, "LeafBroker", NewerBroker)  # noqa: B010
    plan = broker_daemon.load_broker(Path(sys.argv[1]))
    broker_daemon.run_broker(plan, on_ready=tell_ready, on_message=say)
