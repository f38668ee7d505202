"""Sessions with the parent that end and begin while a broker still writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.context import Outside
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.errors import StaleTerm, StorageFailed
from gridstat.net.command.machine import (
    Close,
    Connected,
    Disconnected,
    Persist,
    Persisted,
    PersistFailed,
    Received,
    Send,
)
from gridstat.net.command.segment_messages import SegmentsHeld
from gridstat.net.command.tree_messages import JoinTree, TreeJoined, WatchNames
from tests.unit.broker.stand_ins import PlainVerifier
from tests.unit.broker.tree.tree_world import hello

if TYPE_CHECKING:
    from gridstat.net.command.machine import Event, Instruction
    from gridstat.net.command.messages import Message

ROOT = "broker/root"
CLOUD = "broker/c1"
PLACE = TreeJoined(term=1, depth=1, above=("root",))


class Middle:
    """A broker whose writes end when a test says so."""

    def __init__(self) -> None:
        settings = TreeSettings("west", parent="root")
        self.machine = QosBroker(settings, Outside(PlainVerifier(), lambda: 0), ["c1"], [])
        self.writing: list[Persist] = []
        self.said: list[Message] = []
        self.closed: list[tuple[str, int]] = []
        self._do(self.machine.start(0))
        self.write()

    def tell(self, event: Event) -> list[Message]:
        """Pass an event to the broker and return the messages that it sends."""
        self.said.clear()
        self._do(self.machine.handle(event, 0))
        return list(self.said)

    def write(self) -> list[Message]:
        return self.tell(Persisted(self.writing.pop(0).token))

    def fail(self) -> None:
        """The disk is full."""
        self.tell(PersistFailed(self.writing.pop(0).token, "no space left"))

    def connect(self) -> list[Message]:
        return self.tell(Connected(ROOT, hello(ROOT)))

    def _do(self, instructions: list[Instruction]) -> None:
        for found in instructions:
            if isinstance(found, Persist):
                self.writing.append(found)
            elif isinstance(found, Send):
                self.said.append(found.message)
            elif isinstance(found, Close):
                self.closed.append((found.peer, found.code))


def kinds(words: list[Message]) -> set[type]:
    return {type(word) for word in words}


def test_a_place_that_an_earlier_session_gave_does_not_join_the_present_one() -> None:
    middle = Middle()
    assert kinds(middle.connect()) == {JoinTree}
    middle.tell(Received(ROOT, PLACE))
    middle.tell(Disconnected(ROOT))
    middle.connect()
    assert SegmentsHeld not in kinds(middle.write())
    assert SegmentsHeld in kinds(middle.tell(Received(ROOT, PLACE)))


def test_a_place_that_is_given_again_counts_once_it_is_durable() -> None:
    middle = Middle()
    middle.connect()
    middle.tell(Received(ROOT, PLACE))
    middle.tell(Disconnected(ROOT))
    middle.connect()
    assert middle.tell(Received(ROOT, PLACE)) == []
    assert middle.write() == []
    assert SegmentsHeld in kinds(middle.write())


def watched(middle: Middle) -> list[str]:
    return [word.watch for word in middle.said if isinstance(word, WatchNames)]


def test_words_between_two_places_that_are_being_written_are_all_heard_in_their_order() -> None:
    middle = Middle()
    middle.tell(Connected(CLOUD, hello(CLOUD)))
    middle.tell(Received(CLOUD, JoinTree(term=1, clouds=("c1",))))
    middle.write()
    middle.connect()
    middle.tell(Received(ROOT, PLACE))
    middle.tell(Received(ROOT, WatchNames(term=1, watch="c9#1", pattern="c1/*/v")))
    middle.tell(Received(ROOT, TreeJoined(term=1, depth=2, above=("top", "root"))))
    middle.tell(Received(ROOT, WatchNames(term=1, watch="c9#2", pattern="c1/*/v")))
    middle.write()
    assert watched(middle) == []
    middle.write()
    assert watched(middle) == ["c9#1", "c9#2"]


def test_a_place_that_was_being_written_does_not_join_a_parent_that_was_refused_since() -> None:
    middle = Middle()
    middle.connect()
    middle.tell(Received(ROOT, TreeJoined(term=7, depth=1, above=("root",))))
    middle.tell(Received(ROOT, PLACE))
    assert middle.write() == []
    assert not middle.machine.survey()["is_joined"]


def test_a_place_of_an_earlier_session_that_cannot_be_written_does_not_end_the_present_one() -> (
    None
):
    middle = Middle()
    middle.connect()
    middle.tell(Received(ROOT, PLACE))
    middle.tell(Disconnected(ROOT))
    middle.connect()
    middle.fail()
    assert middle.closed == []
    middle.tell(Received(ROOT, PLACE))
    assert SegmentsHeld in kinds(middle.write())


def test_a_place_of_the_present_session_that_cannot_be_written_ends_it() -> None:
    middle = Middle()
    middle.connect()
    middle.tell(Received(ROOT, PLACE))
    middle.fail()
    assert middle.closed == [(ROOT, StorageFailed.code)]


def test_an_older_process_of_a_child_is_sent_away_and_the_present_one_may_come_again() -> None:
    middle = Middle()
    for term in (5, 5, 4):
        middle.tell(Connected(CLOUD, hello(CLOUD)))
        assert middle.closed == []
        middle.tell(Received(CLOUD, JoinTree(term=term, clouds=("c1",))))
        while middle.writing:
            middle.write()
        assert middle.closed == ([(CLOUD, StaleTerm.code)] if term < 5 else [])
        middle.tell(Disconnected(CLOUD))
    assert middle.machine.state.families.children["c1"].term == 5
