"""Additions of an edge to the answer to a report of ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.net.command.endpoint_messages import (
    Answer,
    EdgeCopies,
    LedgerEntry,
    ReportLedger,
    Unsubscribe,
)
from gridstat.net.command.router_messages import Return
from gridstat.router.edge_copies import copies_for_report
from tests.protocol.router_conversation import PMU, PMU_NAME, RouterConversation, said_to

if TYPE_CHECKING:
    from gridstat.core.rows import CopyFacts

FACTS: CopyFacts = {
    "every": 2,
    "path_count": 2,
    "channel_ids": [7, 0, 0, 0],
    "passed": 100,
    "came": [90, 100, 0, 0],
    "first": [1, 99, 0, 0],
}
REPORT = msgspec.msgpack.encode(
    ReportLedger(
        entries=(
            LedgerEntry(subscription_id=1, expected=5),
            LedgerEntry(subscription_id=2, variable_id=5),
            LedgerEntry(subscription_id=3, variable_id=6),
        )
    )
)
COPIES = EdgeCopies(variable_id=5, every=2, passed=100, ways={7: (90, 1), 0: (100, 99)})


def of_5(variable_id: int) -> CopyFacts | None:
    return FACTS if variable_id == 5 else None


def test_of_each_variable_that_is_asked_for_and_counted_the_ways_are_told() -> None:
    assert copies_for_report(REPORT, of_5) == (COPIES,)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"ReportLedger",
        REPORT[:-3],
        msgspec.msgpack.encode(Unsubscribe(subscription_ids=(5,))),
        msgspec.msgpack.encode({"type": "ReportLedger", "entries": [{"variable_id": 2**40}]}),
    ],
)
def test_anything_else_passes_unchanged(body: bytes) -> None:
    assert copies_for_report(body, of_5) == ()


def test_the_answer_to_a_report_has_what_the_edge_counted_and_others_have_not() -> None:
    router = RouterConversation(copies=of_5)
    router.accept()
    router.connect(PMU)
    for request_id, body in ((1, REPORT), (2, b"body")):
        router.submit(request_id, body)
        said = router.broker_says(
            Return(term=1, endpoint=PMU_NAME, request_id=request_id, body=b"done")
        )
        copies = (COPIES,) if body is REPORT else ()
        assert said_to(PMU, said) == [Answer(request_id=request_id, body=b"done", copies=copies)]
