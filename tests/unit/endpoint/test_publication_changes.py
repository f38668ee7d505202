"""Notices to a publisher, and the result of `send` while an edge router takes no events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.endpoint.session_events import PublicationRestored
from gridstat.model.errors import QuotaReached
from gridstat.net.command.endpoint_messages import EventsPoliced, PublishedOutcome, RefusedOutcome
from tests.unit.endpoint.paper_station import Station

if TYPE_CHECKING:
    from gridstat.endpoint.change import Change


def facts(told: list[Change]) -> list[tuple[str, int]]:
    return [(str(change.kind), change.code) for change in told]


def policed(edge: str = "c1/e0", count_id: int = 1, **counts: int) -> EventsPoliced:
    return EventsPoliced(edge=edge, variable_id=5, count_id=count_id, counts=counts)


def test_send_says_false_while_the_cloud_has_forgotten_the_publication() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    assert voltage.send(1.0)
    station.book.registrations_lost()
    assert not voltage.send(2.0)
    assert not voltage.is_published
    assert station.book.send_many([voltage], [3.0]) == 0
    station.book.restored(
        PublicationRestored(voltage.name, PublishedOutcome(variable=voltage.variable))
    )
    assert voltage.send(4.0)
    assert voltage.is_published


def test_send_says_false_without_an_edge_and_with_all_edges_lost() -> None:
    station = Station()
    voltage = station.publish()
    assert not voltage.send(1.0)
    station = Station("c1/e0", "c1/e1")
    voltage = station.publish()
    station.channels.lose("c1/e0")
    assert voltage.send(1.0)
    station.channels.lose("c1/e1")
    assert not voltage.send(2.0)


def test_send_says_false_if_the_socket_of_the_only_attached_edge_is_full() -> None:
    station = Station("c1/e0", "c1/e1")
    voltage = station.publish()
    station.channels.lose("c1/e1")
    (attached,) = [sender for sender in station.open_senders if sender.channel_id == 1]
    attached.takes = False
    assert not voltage.send(1.0)


def test_a_forgotten_publication_is_purged_refused_and_restored() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    refused = RefusedOutcome(code=QuotaReached.code, reason="too many")
    station.book.registrations_lost()
    station.book.restored(PublicationRestored(voltage.name, refused))
    station.book.restored(PublicationRestored(voltage.name, refused))
    again = PublishedOutcome(variable=voltage.variable)
    station.book.restored(PublicationRestored(voltage.name, again))
    station.book.restored(PublicationRestored(voltage.name, again))  # A change of period, say.
    assert facts(station.told) == [("purged", 3), ("purged", QuotaReached.code), ("restored", 0)]


def test_policed_events_are_told_with_their_reasons_and_added_up_over_edges() -> None:
    station = Station("c1/e0", "c1/e1")
    voltage = station.publish()
    own = voltage.changes()
    station.book.policed(policed(slot=2, stamp=1))
    station.book.policed(policed(slot=2, stamp=1))  # Said twice.
    station.book.policed(policed("c1/e1", slot=3))
    station.book.policed(policed(slot=4, stamp=1))
    assert [(each.edge, dict(each.policed)) for each in station.told] == [
        ("c1/e0", {"slot": 2, "stamp": 1}),
        ("c1/e1", {"slot": 3}),
        ("c1/e0", {"slot": 4, "stamp": 1}),
    ]
    assert voltage.policed == 8
    station.book.end()
    assert [str(each.kind) for each in own] == ["policed"] * 3


def test_a_router_that_counts_anew_takes_nothing_back() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    station.book.policed(policed(slot=10, count_id=1))
    station.book.policed(policed(slot=12, count_id=2))
    station.book.policed(policed(slot=13, count_id=2))
    assert voltage.policed == 23


def test_a_report_of_a_variable_that_is_none_of_ours_is_nobodys() -> None:
    station = Station("c1/e0")
    station.book.policed(policed(slot=1))
    assert station.told == []
