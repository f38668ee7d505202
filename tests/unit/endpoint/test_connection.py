"""Calls of a connection with a cloud on paper: what they request for the names they are given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from gridstat import FLOAT64, MovingAverage
from gridstat.endpoint.connection import Connection
from gridstat.model.status import BuiltinType, DerivedValue
from tests.unit.endpoint.paper_grid import PaperGrid, PaperLink, granted, variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.endpoint.publisher import Publication
    from gridstat.model.derived import Derivation
    from gridstat.model.status import StatusVariable

NAMES = ["c1/a/v", "c1/b/v"]


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


@pytest.fixture
def connection(grid: PaperGrid) -> Connection:
    outcomes = [granted(variable(name, 1 + at), 1 + at) for at, name in enumerate(NAMES)]
    grid.cloud.ready.append(tuple(outcomes))
    return Connection(PaperLink(grid))  # type: ignore[arg-type]


def once_each() -> list[Any]:
    """Return iterables that yield the names only once."""
    return [iter(NAMES), (name for name in NAMES), map(str, NAMES)]


@pytest.mark.parametrize("at", range(3))
def test_names_that_can_be_iterated_once_are_all_subscribed(
    connection: Connection, at: int
) -> None:
    found = connection.subscribe_many(once_each()[at])
    assert [each.name for each in found] == NAMES


@pytest.mark.parametrize("at", range(3))
def test_names_that_can_be_iterated_once_are_all_subscribed_later(
    connection: Connection, at: int
) -> None:
    found: list[Any] = connection.subscribe_later(once_each()[at]).result()
    assert [each.name for each in found] == NAMES


def test_derived_values_that_can_be_iterated_once_are_kept_of_every_name(grid: PaperGrid) -> None:
    average = DerivedValue("average_10", BuiltinType.FLOAT64)
    outcomes = [
        granted(replace(variable(name, 1 + at), derived=(average,)), 1 + at)
        for at, name in enumerate(NAMES)
    ]
    grid.cloud.ready.append(tuple(outcomes))
    connection = Connection(PaperLink(grid))  # type: ignore[arg-type]
    found = connection.subscribe_many(NAMES, derived=iter(["average_10"]))
    kept = [each.incoming.holder.derived_names for each in found]
    assert kept == [{"average_10"}, {"average_10"}]


class PublishingLink:
    """The parts of a connection that publications need; the cloud's answers are not looked at."""

    def __init__(self) -> None:
        self.name = "c1/me"
        self.publications = self
        self.asked: list[tuple[StatusVariable, Sequence[Derivation]]] = []

    def publish(
        self, wanted: Sequence[tuple[StatusVariable, Sequence[Derivation]]], _: object
    ) -> list[Publication]:
        self.asked += wanted
        return [cast("Publication", None)] * len(wanted)


def test_derivations_that_can_be_iterated_once_are_published_with_every_name() -> None:
    link = PublishingLink()
    connection = Connection(link)  # type: ignore[arg-type]
    average = MovingAverage(10)
    once: list[Any] = [iter([average]), iter([average])]
    connection.publish("a", FLOAT64, rate=1, derived=once[0])
    connection.publish_many(["b", "c"], FLOAT64, rate=1, derived=once[1])
    assert [tuple(derived) for _, derived in link.asked] == [(average,)] * 3
    assert [len(variable.derived) for variable, _ in link.asked] == [1] * 3
