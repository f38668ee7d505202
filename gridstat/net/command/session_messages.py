"""How a session begins, lives and ends; and the base of all messages.

Schema 1 is the first. A later version only adds messages and fields with defaults: unknown fields
are ignored, and nobody is sent a message newer than the version that its `Hello` announced.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

SCHEMA_VERSION: Final = 3
SCHEMA_VERSION_MIN: Final = 1
MANY_MAX: Final = 1_000
"""Variables in one request, and orders of one kind in one table change."""

NameText: TypeAlias = Annotated[str, msgspec.Meta(max_length=255)]
"""A name or pattern, or what somebody calls something: whatever others keep has a bound."""
ShortText: TypeAlias = Annotated[str, msgspec.Meta(max_length=128)]
"""A mark that one process gives itself, or an address."""
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

    `since` is the schema that brought the message; a peer of an older one is never sent it.
    """

    since: ClassVar[int] = 1


class Hello(Struct, frozen=True, omit_defaults=False):
    """First frame of both sides. `instance` is new with every process; `name` is checked
    against the certificate.

    It is written in full: a reader of another version has other defaults for the versions.
    """

    role: ShortText
    name: NameText
    instance: ShortText
    schema_version: int = SCHEMA_VERSION
    schema_version_min: int = SCHEMA_VERSION_MIN
    software: ShortText = ""


class Ping(Struct, frozen=True):
    """Are you there?"""

    number: int


class Pong(Struct, frozen=True):
    """The answer, with the same number."""

    number: int


class Bye(Struct, frozen=True):
    """Last frame: why the session ends; code 0 is an ordinary end."""

    code: int = 0
    reason: str = ""
    hint: str = ""
