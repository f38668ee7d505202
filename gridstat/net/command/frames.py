"""Messages as bytes: frames of a session, and the signed or forwarded bodies inside them.

| Offset | Bytes | Field | Meaning |
|---|---|---|---|
| 0 | 1 | version | 1 |
| 1 | 1 | kind | 0: a message |
| 2 | 2 | reserved | written as 0, ignored when read |
| 4 | 4 | length | of the body, at most 4 MiB |
| 8 | length | body | one message as MessagePack |

Whatever comes from outside is either a message or a `Malformed`; no other error leaves here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar, get_args

import msgspec

from gridstat.model.errors import (
    FrameTooLarge,
    GridStatError,
    LayoutError,
    MalformedFrame,
    QuotaReached,
)
from gridstat.net.command.messages import MANY_MAX, EndPointCommand, Message, Notice, Outcomes

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAME_VERSION: Final = 1
KIND_MESSAGE: Final = 0
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
"""Largest body in bytes. A thousand orders or variables take a tenth of it."""

HEADER: Final = struct.Struct(">BBHI")
HEADER_BYTES: Final = HEADER.size

Decoded = TypeVar("Decoded")


def frame(message: Message) -> bytes:
    """Encode a message as one frame."""
    body = encode_body(message)
    if len(body) > FRAME_BYTES_MAX:
        raise FrameTooLarge(
            f"{type(message).__name__} takes {len(body):,} bytes, {FRAME_BYTES_MAX:,} are allowed"
        )
    return HEADER.pack(FRAME_VERSION, KIND_MESSAGE, 0, len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into bodies; holds at most one frame that is not yet whole."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._held = bytearray()
        self._wanted_bytes = HEADER_BYTES

    def feed(self, received: bytes) -> Iterator[bytes]:
        """Yield the bodies that are complete, in order; raise at the first bytes that are no
        frame."""
        held = received
        if self._held:
            # A large frame comes in many pieces, which are joined only once it is whole.
            self._held += received
            if len(self._held) < self._wanted_bytes:
                return
            held, self._held = bytes(self._held), bytearray()
        at, end = 0, len(held)
        self._wanted_bytes = HEADER_BYTES
        while end - at >= HEADER_BYTES:
            version, kind, _, length = HEADER.unpack_from(held, at)
            self._check(version, kind, length)
            body_at = at + HEADER_BYTES
            if end - body_at < length:
                self._wanted_bytes = HEADER_BYTES + length
                break
            at = body_at + length
            yield held[body_at:at]
        self._held += held[at:]

    def _check(self, version: int, kind: int, length: int) -> None:
        if version != FRAME_VERSION or kind != KIND_MESSAGE:
            raise MalformedFrame(
                f"frame of version {version} and kind {kind}, "
                f"expected {FRAME_VERSION} and {KIND_MESSAGE}"
            )
        if length > self.frame_bytes_max:
            raise FrameTooLarge(
                f"frame announces {length:,} bytes, {self.frame_bytes_max:,} are allowed"
            )


def encode_body(value: Message | EndPointCommand | Outcomes | Notice) -> bytes:
    """Encode the body of a frame, `Submit`, `Answer` or `Notify`."""
    try:
        return _ENCODER.encode(value)
    except OverflowError as error:
        raise LayoutError(
            f"{type(value).__name__} has a number that no message holds",
            hint="whole numbers have at most 64 bits",
        ) from error


def decode_message(body: bytes) -> Message | None:
    """Decode the message of a frame; None for a type that a later schema has added."""
    return _decode_known(_MESSAGE, body, _MESSAGE_TYPES)


def decode_command(body: bytes) -> EndPointCommand:
    """Decode the request of an end-point; an unknown type cannot be carried out, so it is
    malformed.

    For too many items in one request the cause of the error is a `QuotaReached`.
    """
    try:
        return _decode(_COMMAND, body)
    except MalformedFrame as error:
        before, _, after = str(error.__cause__).partition(_TOO_MANY)
        if before or not after:
            raise
        kind = after.rstrip("`").replace("_", " ")
        text = f"a request has at most {MANY_MAX:,} {kind}"
        raise MalformedFrame(text) from QuotaReached(text, hint="ask in several requests")


def command_type(body: bytes) -> str:
    """Return the type that a request names; nothing else of it is checked."""
    return _decode(_TAGGED, body).type


def decode_outcomes(body: bytes) -> Outcomes:
    return _decode(_OUTCOMES, body)


def decode_notice(body: bytes) -> Notice | None:
    """Decode a notice; None for a type that a later schema has added."""
    return _decode_known(_NOTICE, body, _NOTICE_TYPES)


class _Tagged(msgspec.Struct):
    """Type of a message alone, to tell an unknown type from a malformed message."""

    type: str


_TOO_MANY: Final = f"Expected `array` of length <= {MANY_MAX} - at `$."
"""Start of the library's error for a too long array; the name of the field follows."""
_ENCODER: Final = msgspec.msgpack.Encoder()
_MESSAGE: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
_COMMAND: Final[msgspec.msgpack.Decoder[EndPointCommand]] = msgspec.msgpack.Decoder(EndPointCommand)
_OUTCOMES: Final = msgspec.msgpack.Decoder(Outcomes)
_NOTICE: Final[msgspec.msgpack.Decoder[Notice]] = msgspec.msgpack.Decoder(Notice)
_TAGGED: Final = msgspec.msgpack.Decoder(_Tagged)
_MESSAGE_TYPES: Final = frozenset(kind.__struct_config__.tag for kind in get_args(Message))
_NOTICE_TYPES: Final = frozenset(kind.__struct_config__.tag for kind in get_args(Notice))


def _decode_known(
    decoder: msgspec.msgpack.Decoder[Decoded], body: bytes, known: frozenset[str]
) -> Decoded | None:
    try:
        return _decode(decoder, body)
    except MalformedFrame:
        if _decode(_TAGGED, body).type in known:
            raise
        return None


def _decode(decoder: msgspec.msgpack.Decoder[Decoded], body: bytes) -> Decoded:
    try:
        return decoder.decode(body)
    # Beside its own errors the library lets pass those of bad UTF-8, of deep nesting, and of the
    # values' own checks.
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedFrame(f"message cannot be read: {error}") from error
    except GridStatError as error:
        raise MalformedFrame(f"message cannot be read: {error.args[0]}", hint=error.hint) from error
