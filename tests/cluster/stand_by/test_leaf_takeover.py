"""A cloud's broker dies below its parent, another process takes over: it joins, and all stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.eventually import eventually
from tests.cluster.stand_by.databases import own_database
from tests.cluster.stand_by.replacing import OTHERS, replaced
from tests.cluster.stand_by.rooted import CLOUDS, RootedClouds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.postgres import DatabaseServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture(params=CLOUDS, ids=("publisher's", "subscriber's"))
def clouds(
    request: pytest.FixtureRequest, tmp_path: Path, database_server: DatabaseServer
) -> Iterator[RootedClouds]:
    url = own_database(database_server, f"leaf_{request.param}")
    with RootedClouds(tmp_path, url, doubled=request.param) as made:
        made.start()
        yield made


@pytest.mark.feature("S0-123", "S0-122")
def test_a_leaf_broker_that_is_killed_in_the_middle_of_requests_between_clouds_is_replaced(
    clouds: RootedClouds,
) -> None:
    refused, taken, term = replaced(clouds, "below", lambda: term_as_joined(clouds))
    if clouds.doubled == "c2":
        assert refused == []
    else:  # The root waits for a publisher's cloud for some seconds, and says so if that is over.
        assert all("c1" in words for words in refused), refused
    assert not taken.is_over
    assert term_as_joined(clouds) > term
    eventually(lambda: others_than(1 + OTHERS, clouds))


def others_than(wanted: int, clouds: RootedClouds) -> str | None:
    """Return a complaint until root and clouds hold `wanted` contracts each."""
    facts = clouds.survey(("root", *CLOUDS))
    held = [facts["root"]["contracts"], *(facts[one]["totals"]["segments"] for one in CLOUDS)]
    return None if held == [wanted] * 3 else f"root and clouds hold {held}, not {wanted} each"


def term_as_joined(clouds: RootedClouds) -> int:
    """Return the term of the doubled broker that its parent knows."""
    children = clouds.survey()["root"]["children"]
    return next(int(one["term"]) for one in children if one["name"] == clouds.doubled)
