"""Frames: what is written is read, in whatever pieces it comes; lies are named."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.errors import FrameTooLarge, LayoutError, MalformedFrame
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.frames import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    FrameReader,
    decode_command,
    decode_message,
    decode_notice,
    decode_outcomes,
    encode_body,
    frame,
)
from gridstat.net.command.messages import (
    ChangeTable,
    Detach,
    DoneOutcome,
    Hello,
    ModesChanged,
    OperatorAnswer,
    Outcomes,
    PathOrder,
    Ping,
    RefusedOutcome,
    Subscribe,
    SubscriptionRequest,
    TableChanged,
)

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message

MESSAGES: list[Message] = [
    Hello(role="router", name="c1/e0", instance="a"),
    Ping(number=7),
    ChangeTable(term=1, number=1, paths=(PathOrder(path_id=1, variable_id=2, channel_id=3),)),
    OperatorAnswer(request_id=1, facts={"routers": [{"name": "c1/e0"}]}),
]


def raw(**fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


@given(st.lists(st.integers(1, 40), max_size=60))
def test_messages_survive_a_stream_cut_anywhere(cuts: list[int]) -> None:
    stream = b"".join(frame(message) for message in MESSAGES)
    reader, read, at = FrameReader(), [], 0
    for cut in [*cuts, len(stream)]:
        read += [decode_message(body) for body in reader.feed(stream[at : at + cut])]
        at += cut
    assert read == MESSAGES


def test_a_large_frame_is_read_from_many_pieces() -> None:
    answer = OperatorAnswer(request_id=1, facts={"text": "x" * 1_000_000})
    stream, reader = frame(answer), FrameReader()
    pieces = [stream[at : at + 16_384] for at in range(0, len(stream), 16_384)]
    bodies = [body for piece in pieces for body in reader.feed(piece)]
    assert [decode_message(body) for body in bodies] == [answer]


def test_the_header_is_as_documented() -> None:
    written = frame(Ping(number=1))
    assert struct.unpack(">BBHI", written[:HEADER_BYTES]) == (1, 0, 0, len(written) - HEADER_BYTES)


def test_the_bytes_are_those_of_the_reference_page() -> None:
    body = b"\x83\xa4type\xacTableChanged\xa6number\x01\xa6digest\x02"
    written = frame(TableChanged(number=1, digest=2))
    assert written == bytes.fromhex("01 00 00 00 00 00 00 23") + body


def test_a_hello_states_its_versions_even_where_they_are_the_default() -> None:
    body = encode_body(Hello(role="router", name="c1/e0", instance="a"))
    assert b"schema_version" in body
    assert b"schema_version_min" in body


def test_reserved_bytes_are_ignored() -> None:
    written = bytearray(frame(Ping(number=1)))
    written[2:4] = b"\xab\xcd"
    assert len(list(FrameReader().feed(bytes(written)))) == 1


@pytest.mark.parametrize(("version", "kind"), [(0, 0), (2, 0), (1, 1), (71, 69)])
def test_another_version_or_kind_is_no_frame(version: int, kind: int) -> None:
    with pytest.raises(MalformedFrame, match=f"version {version} and kind {kind}"):
        list(FrameReader().feed(struct.pack(">BBHI", version, kind, 0, 1) + b"x"))


def test_a_frame_that_announces_too_much_is_refused_before_it_comes() -> None:
    with pytest.raises(FrameTooLarge):
        list(FrameReader().feed(struct.pack(">BBHI", 1, 0, 0, FRAME_BYTES_MAX + 1)))


def test_a_frame_of_exactly_the_most_bytes_is_read() -> None:
    body = bytes(100)
    whole = struct.pack(">BBHI", 1, 0, 0, len(body)) + body
    assert list(FrameReader(frame_bytes_max=100).feed(whole)) == [body]
    with pytest.raises(FrameTooLarge):
        list(FrameReader(frame_bytes_max=99).feed(whole))


def test_frames_before_a_broken_one_are_still_read() -> None:
    bodies = FrameReader().feed(frame(Ping(number=1)) + b"GET / HTTP/1.1")
    assert decode_message(next(bodies)) == Ping(number=1)
    with pytest.raises(MalformedFrame):
        next(bodies)


def test_a_message_too_large_to_send_is_refused_at_the_sender() -> None:
    with pytest.raises(FrameTooLarge, match="OperatorAnswer"):
        frame(OperatorAnswer(request_id=1, facts={"x": "y" * FRAME_BYTES_MAX}))


@pytest.mark.feature("S3-48")
def test_an_unknown_field_is_ignored() -> None:
    assert decode_message(raw(type="Ping", number=7, colour="red")) == Ping(number=7)


@pytest.mark.feature("S3-48")
def test_a_message_that_a_later_schema_added_is_told_apart_from_a_broken_one() -> None:
    assert decode_message(raw(type="PaintRouter", colour="red")) is None
    assert decode_notice(raw(type="PaintChanged")) is None
    assert decode_notice(encode_body(ModesChanged(modes=3))) == ModesChanged(modes=3)


def test_a_command_of_unknown_type_cannot_be_obeyed() -> None:
    with pytest.raises(MalformedFrame, match="PaintEverything"):
        decode_command(raw(type="PaintEverything"))


def test_commands_and_outcomes_survive_their_bytes() -> None:
    asked = SubscriptionRequest(
        name="c1/a/b", qos=ModalQos({0: QosRequest(every=2), 3: QosRequest(latency_us=9)})
    )
    command = Subscribe(subscriptions=(asked,))
    assert decode_command(encode_body(command)) == command
    assert decode_command(encode_body(Detach())) == Detach()
    outcomes = Outcomes(outcomes=(DoneOutcome(), RefusedOutcome(code=1036, reason="too far")))
    assert decode_outcomes(encode_body(outcomes)) == outcomes


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        raw(number=7),
        raw(type=7, number=7),
        raw(type="Ping"),
        raw(type="Ping", number="seven"),
        raw(type="Ping", number=7) + b"more",
        raw(type="Ping", number=7)[:-1],
        raw(type="AddRouter", request_id=1, router={"name": "a b"}),
        raw(type="OperatorAnswer", request_id=1, facts={"a": 1})[:-1] + b"\x91" * 100_000,
        raw(type="OperatorAnswer", request_id=1, facts={"a": 1})[:-1] + b"\xa2\xff\xfe",
        raw(type="ChangeTable", term=1, number=1, paths=[])[:-1] + b"\xdd\xff\xff\xff\xff",
    ],
    ids=[
        "nothing",
        "reserved byte",
        "no type",
        "type is a number",
        "field missing",
        "field of the wrong type",
        "more behind",
        "cut short",
        "value against its own rule",
        "nested too deeply",
        "text that is not UTF-8",
        "list longer than the frame",
    ],
)
def test_a_body_that_lies_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_message(body)


@given(st.binary(max_size=200))
def test_no_bytes_whatsoever_raise_anything_but_malformed(body: bytes) -> None:
    for decode in (decode_message, decode_command, decode_outcomes, decode_notice):
        with suppress(MalformedFrame):
            decode(body)


@given(st.sampled_from(MESSAGES), st.data())
def test_a_flipped_byte_gives_a_message_or_malformed(message: Any, data: st.DataObject) -> None:
    body = bytearray(encode_body(message))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedFrame):
        decode_message(bytes(body))


def test_a_number_that_no_message_holds_is_told_as_such() -> None:
    with pytest.raises(LayoutError, match="Ping has a number") as refused:
        frame(Ping(number=10**30))
    assert "64 bits" in refused.value.hint
