"""Messages that open, keep alive and end a session; and the base of all messages.

Both sides send Hello first, the client before the server. Either side sends Ping after an interval
without input and answers Ping with Pong. Bye is the last message; the states and timeouts are in
`session.py`.

Versions: schema 1 is the first. A later schema only adds messages, and fields with defaults. A
receiver ignores unknown fields and counts unknown messages; a sender holds back messages newer than
the schema that the peer's `Hello` announced.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

SCHEMA_VERSION: Final = 4
SCHEMA_VERSION_MIN: Final = 1
MANY_MAX: Final = 1_000
"""Bound on the variables in one request, and on the orders of one kind in one table change."""

NameText: TypeAlias = Annotated[str, msgspec.Meta(max_length=255)]
"""Name, pattern or label; bounded because the receiver stores it."""
ShortText: TypeAlias = Annotated[str, msgspec.Meta(max_length=128)]
"""Short identifier of a process, or an address."""
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Versions: TypeAlias = Annotated[tuple[int, ...], msgspec.Meta(max_length=16)]


class Struct(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    tag=True,
    kw_only=True,
    forbid_unknown_fields=False,
):
    """Base of all messages: a MessagePack map with the class name as its `type`.

    `since` is the schema that added the message; a peer of an older schema is never sent the
    message.
    """

    since: ClassVar[int] = 1


class Hello(Struct, frozen=True, omit_defaults=False):
    """First message of both sides; the receiver checks `role` and `name` against the certificate.

    `instance` is new with every process. The receiver refuses a peer without a common schema. All
    fields are written, since a reader of another version has other defaults for the versions.
    """

    role: ShortText
    name: NameText
    instance: ShortText
    schema_version: int = SCHEMA_VERSION
    schema_version_min: int = SCHEMA_VERSION_MIN
    software: ShortText = ""


class Ping(Struct, frozen=True):
    """Sent by either side after an interval without input; the receiver answers with `Pong`."""

    number: int


class Pong(Struct, frozen=True):
    """Answer to `Ping`, with the same number."""

    number: int


class Bye(Struct, frozen=True):
    """Last message of either side: the reason why the session ends; code 0 is an ordinary end.

    The receiver closes its own side.
    """

    code: int = 0
    reason: str = ""
    hint: str = ""
