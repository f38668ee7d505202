"""Tags and field names of messages and operations never change, whatever their classes are called.

A router of the version before reads what a broker of this version sends, and this version reads the
journals of the version before. `tests/golden/wire_names.toml` holds the names as 0.1.0 wrote them.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from gridstat.broker.context import Outside
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.errors import MalformedFrame
from gridstat.net.command import frames, messages
from tests.golden.load import load_golden
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.stand_ins import PlainVerifier

GOLDEN: dict[str, dict[str, str]] = load_golden("wire_names.toml")


def structs_in(*unions: Any) -> dict[str, tuple[str, ...]]:
    """Every tagged struct that a value of these types may hold, by its tag: its field names."""
    found: dict[str, tuple[str, ...]] = {}
    waiting = [msgspec.inspect.type_info(union) for union in unions]
    seen: set[int] = set()
    while waiting:
        info = waiting.pop()
        if id(info) in seen:
            continue
        seen.add(id(info))
        if isinstance(info, msgspec.inspect.StructType):
            if info.tag is not None:
                found[str(info.tag)] = tuple(field.encode_name for field in info.fields)
            waiting += [field.type for field in info.fields]
        waiting += _types_inside(info)
    return found


def _types_inside(info: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    inside = [getattr(info, name, None) for name in ("item_type", "key_type", "value_type")]
    many = [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    return [each for each in (*inside, *many) if isinstance(each, msgspec.inspect.Type)]


def qos_broker() -> QosBroker:
    return QosBroker(TreeSettings("root"), Outside(PlainVerifier(), lambda: 0), (), ())


WRITTEN = {
    "message": structs_in(
        messages.Message, messages.EndPointCommand, messages.Outcomes, messages.Notice
    ),
    "journal": structs_in(*Conversation().broker.operation_types),
    "tree-journal": structs_in(*qos_broker().operation_types),
}
CASES = [(kind, tag) for kind, tags in GOLDEN.items() for tag in tags]


@pytest.mark.parametrize(("kind", "tag"), CASES)
def test_a_tag_and_its_fields_stay_as_they_were(kind: str, tag: str) -> None:
    old = tuple(GOLDEN[kind][tag].split())
    assert WRITTEN[kind][tag][: len(old)] == old


def test_a_frame_knows_messages_by_their_tags() -> None:
    """A message of a known tag without its fields is malformed; only unknown tags are ignored."""
    assert frames.decode_message(msgspec.msgpack.encode({"type": "OfALaterSchema"})) is None
    needing = [kind for kind in get_args(messages.Message) if _needs_fields(kind)]
    assert len(needing) > 40
    for kind in needing:
        with pytest.raises(MalformedFrame):
            frames.decode_message(msgspec.msgpack.encode({"type": kind.__struct_config__.tag}))


def _needs_fields(kind: type[msgspec.Struct]) -> bool:
    return any(field.required for field in msgspec.structs.fields(kind))
