"""Edges that refuse an end-point's address: `connect` says so, and so do changes later."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from gridstat.endpoint.address_verdicts import VERDICTS_MAX, AddressVerdicts
from gridstat.endpoint.change import Change, ChangeKind, Subject
from gridstat.endpoint.change_notifier import ChangeNotifier
from gridstat.endpoint.cloud_link import CloudLink
from gridstat.endpoint.edge_address import EdgeAddress
from gridstat.endpoint.session_events import AddressJudged
from gridstat.model.errors import DeadlinePassed, LinkDown
from gridstat.net.clock import SystemClock
from gridstat.net.command.endpoint_messages import AddressProved, AddressRefused

if TYPE_CHECKING:
    from gridstat.endpoint.change_stream import ChangeFollowers

E0, E1 = "c1/e0", "c1/e1"
DOWN = {E0: 7, E1: 9}


class NoRegistry:
    """Subscriptions or publications of which there are none."""

    def followers(self) -> list[ChangeFollowers]:
        return []


def link_of(*attached: str) -> tuple[CloudLink, list[Change]]:
    """A link with sealed channels from the attached ones of two edges, and the changes seen."""
    changes: list[Change] = []
    link: Any = CloudLink.__new__(CloudLink)
    link.name = "c1/reader"
    link._edges = tuple(EdgeAddress(name, "10.0.0.1", 4_000) for name in DOWN)
    link.subscriptions = link.publications = NoRegistry()
    link.notifier = ChangeNotifier(lambda work: work(), SystemClock(), changes.append)
    link._state = threading.Condition()
    link._attached = set(attached)
    link._sealed_sources = {edge: DOWN[edge] for edge in attached}
    link._verdicts = AddressVerdicts()
    link._failures = {}
    return link, changes


def refused(edge: str) -> AddressJudged:
    verdict = AddressRefused(
        channel_id=DOWN[edge], reason="nothing shows it", hint="let UDP pass; asks again in 30 s"
    )
    return AddressJudged(edge, verdict)


def proved(edge: str) -> AddressJudged:
    return AddressJudged(edge, AddressProved(channel_id=DOWN[edge]))


def test_connect_fails_with_code_and_hint_if_all_edges_refuse_the_address() -> None:
    link, _ = link_of(E0, E1)
    link.output_received(refused(E0))
    link.output_received(refused(E1))
    with pytest.raises(LinkDown, match="nothing shows it") as raised:
        link._await_edges(time.monotonic() + 20)
    assert raised.value.code == 2000
    assert "let UDP pass" in str(raised.value.hint)


def test_connect_fails_if_one_edge_refuses_and_the_other_is_not_there() -> None:
    link, _ = link_of(E0)
    link.connection_failed(E1, LinkDown("no route"))
    link.output_received(refused(E0))
    with pytest.raises(LinkDown, match="nothing shows it"):
        link._await_edges(time.monotonic() + 20)


def test_connect_succeeds_with_one_proved_edge_without_waiting_for_the_refused_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, _ = link_of(E0, E1)
    link.output_received(refused(E0))
    link.output_received(proved(E1))
    waited: list[float] = []
    monkeypatch.setattr(link._state, "wait", waited.append)
    link._await_edges(time.monotonic() + 20)
    assert waited == []


def test_a_connect_without_a_verdict_says_that_no_datagram_came() -> None:
    link, _ = link_of(E0)
    with pytest.raises(DeadlinePassed, match="no datagram came") as raised:
        link._await_edges(time.monotonic())
    assert "let UDP pass" in str(raised.value.hint)


def test_a_later_refusal_and_the_proof_after_it_are_notified_once() -> None:
    link, changes = link_of(E0)
    link.output_received(proved(E0))
    assert changes == []
    for _ in range(3):
        link.output_received(refused(E0))
    for _ in range(2):
        link.output_received(proved(E0))
    assert [(each.kind, each.subject, each.name) for each in changes] == [
        (ChangeKind.LOWERED, Subject.EDGE, E0),
        (ChangeKind.RESTORED, Subject.EDGE, E0),
    ]
    assert changes[0].code == 2000
    assert "asks again in 30 s" in changes[0].reason


def test_one_edge_judges_only_its_own_channels_and_a_bounded_number() -> None:
    verdicts = AddressVerdicts()
    verdicts.note(E0, AddressProved(channel_id=7))
    assert verdicts.is_proved(E0, 7)
    assert not verdicts.is_proved(E1, 7)
    for channel_id in range(100, 100 + VERDICTS_MAX):
        verdicts.note(E1, AddressProved(channel_id=channel_id))
    assert verdicts.is_proved(E0, 7)
    for channel_id in range(100, 100 + VERDICTS_MAX):
        verdicts.note(E0, AddressProved(channel_id=channel_id))
    assert not verdicts.is_proved(E0, 7)
