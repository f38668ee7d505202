"""A database that has lost a take-over, as a copy may have: it gives one tenure out twice."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.model.errors import StorageFailed
from tests.cluster.eventually import eventually
from tests.protocol.journals.holders import holder
from tests.protocol.journals.places import do, load, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.protocol.journals.holders import Holder
    from tests.protocol.journals.places import DatabasePlace

pytestmark = pytest.mark.feature("S0-123")
BEFORE = "SELECT holder, tenure FROM gridstat_brokers WHERE broker = %s"


@contextmanager
def same_tenure(place: DatabasePlace) -> Iterator[tuple[Holder, Holder]]:
    """Two processes that have taken one tenure; the second one after the first was forgotten."""
    write(place, (b"a",))
    ((name, tenure),) = do(place, BEFORE)
    with holder(place) as forgotten:
        do(
            place,
            f"UPDATE gridstat_brokers SET holder = '{name}', tenure = {tenure}, "
            "expires = 'epoch' WHERE broker = %s",
        )
        with holder(place) as known:
            tenures = [one.journal.figures()["tenure"] for one in (forgotten, known)]
            assert tenures == [tenure + 1, tenure + 1]
            yield forgotten, known


def test_who_is_forgotten_writes_nothing_under_another_s_tenure(shared: DatabasePlace) -> None:
    with same_tenure(shared) as (forgotten, known):
        with pytest.raises(StorageFailed, match="another broker is in charge"):
            snapshot(forgotten)
        assert forgotten.losses == ["another broker writes the journal"]
        known.persist(b"b")
        assert known.losses == []
    assert load(shared) == [b"a", b"b"]


def snapshot(found: Holder) -> None:
    async def persist() -> None:
        await found.journal.persist(1, (SNAPSHOT_MARK, b"all that it knows"))

    asyncio.run(persist())


def test_who_is_forgotten_renews_nothing_under_another_s_tenure(shared: DatabasePlace) -> None:
    with same_tenure(replace(shared, lease_s=4.0)) as (forgotten, _):
        eventually(lambda: None if forgotten.losses else "it still thinks it is in charge")
        assert forgotten.losses == ["another broker has taken over"]


def test_who_is_forgotten_gives_no_other_s_lease_back(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with same_tenure(shared) as (forgotten, _):
        forgotten.journal.close()
        monkeypatch.setattr(forgotten.journal, "close", lambda: None)
        with holder(shared) as third:
            assert third.journal.claim() > 0
