"""Attached and absent end-points, and the notices that wait for them."""

from __future__ import annotations

import pytest

from gridstat.router.edge_attachments import AttachmentBounds, EdgeAttachments

PMU, DESK = "c1/pmu", "c1/desk"


@pytest.fixture
def attachments() -> EdgeAttachments:
    bounds = AttachmentBounds(
        attached_max=2, notices_of_endpoint_max=2, notices_max=3, kept_ns_max=100
    )
    return EdgeAttachments(bounds)


def test_notices_wait_for_the_same_process(attachments: EdgeAttachments) -> None:
    assert attachments.arrive(PMU, "first") == []
    assert attachments.depart(PMU, 0)
    assert PMU not in attachments
    attachments.keep_notice(PMU, b"a")
    attachments.keep_notice(PMU, b"b")
    assert attachments.arrive(PMU, "first") == [b"a", b"b"]
    assert PMU in attachments
    assert attachments.notices_dropped == 0


def test_another_process_of_the_name_gets_none_of_them(attachments: EdgeAttachments) -> None:
    attachments.arrive(PMU, "first")
    attachments.depart(PMU, 0)
    attachments.keep_notice(PMU, b"a")
    assert attachments.arrive(PMU, "second") == []
    assert attachments.notices_dropped == 1


def test_the_oldest_notice_goes_beyond_a_bound(attachments: EdgeAttachments) -> None:
    for endpoint in (PMU, DESK):
        attachments.arrive(endpoint, "first")
        attachments.depart(endpoint, 0)
    for body in (b"a", b"b", b"c"):
        attachments.keep_notice(PMU, body)
    attachments.keep_notice(DESK, b"d")
    attachments.keep_notice(DESK, b"e")
    assert attachments.arrive(PMU, "first") == [b"c"]
    assert attachments.arrive(DESK, "first") == [b"d", b"e"]
    assert attachments.notices_dropped == 2


def test_nothing_is_kept_for_a_stranger(attachments: EdgeAttachments) -> None:
    attachments.keep_notice(PMU, b"a")
    assert attachments.notices_dropped == 1
    assert not attachments.depart(PMU, 0)


def test_who_is_away_too_long_is_forgotten(attachments: EdgeAttachments) -> None:
    attachments.arrive(PMU, "first")
    attachments.depart(PMU, 5)
    attachments.keep_notice(PMU, b"a")
    attachments.expire(104)
    assert attachments.has_absent()
    attachments.expire(105)
    assert not attachments.has_absent()
    assert attachments.arrive(PMU, "first") == []
    assert attachments.notices_dropped == 1


def test_those_away_are_bounded_too(attachments: EdgeAttachments) -> None:
    for number in range(4):
        attachments.arrive(f"c1/{number}", "first")
        attachments.depart(f"c1/{number}", 0)
    known = [attachments.instance_of(f"c1/{number}") for number in range(4)]
    assert known == [None, None, "first", "first"]


def test_one_that_was_sent_away_is_unknown(attachments: EdgeAttachments) -> None:
    attachments.arrive(PMU, "first")
    attachments.forget(PMU)
    assert attachments.names() == ()
    assert not attachments.depart(PMU, 0)


def test_there_is_room_for_so_many(attachments: EdgeAttachments) -> None:
    attachments.arrive(PMU, "first")
    assert attachments.has_room()
    attachments.arrive(DESK, "first")
    assert not attachments.has_room()
    assert attachments.names() == (DESK, PMU)


def test_notices_are_bounded_in_bytes_for_one_and_for_all() -> None:
    attachments = EdgeAttachments(AttachmentBounds(bytes_of_endpoint_max=10, bytes_max=15))
    for endpoint in (PMU, DESK):
        attachments.arrive(endpoint, "first")
        attachments.depart(endpoint, 0)
    for body in (b"a" * 6, b"b" * 6, b"c" * 4):
        attachments.keep_notice(PMU, body)
    assert attachments.notices_dropped == 1
    attachments.keep_notice(DESK, b"d" * 6)
    assert attachments.notices_dropped == 2
    attachments.keep_notice(DESK, b"e" * 11)
    assert attachments.arrive(PMU, "first") == [b"c" * 4]
    assert attachments.arrive(DESK, "first") == []
    assert attachments._size_bytes == 0
