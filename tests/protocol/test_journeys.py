"""The pages of `docs/journeys` name every file that runs on the path of an event or subscription.

Each test runs the real parts, records which files of `gridstat` run, and compares these with the
paths that the page names. A page names a file by its path below `gridstat`, between backticks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import gridstat
from tests.protocol.journey_ends import JourneyEnds
from tests.protocol.journey_grid import FAR, NEAR, PUBLISHER, JourneyGrid
from tests.protocol.journey_trace import ROOT, traced_core_files, traced_modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PAGES = ROOT / "docs" / "journeys"
VARIABLE = f"{PUBLISHER}/frequency"
NAMED = re.compile(r"`((?:[a-z_]+/)+\w+\.(?:py|pyx|c|h))`")
NOT_OF_A_JOURNEY = {
    "__init__.py": "loads public names on first use",
    "model/identifiers.py": "has no logic: types and names of numbers",
    "model/exact_numbers.py": "checks the type of every number that a caller gives",
    "broker/interning.py": "keeps one copy of equal values, to save memory",
    "core/counter_names.py": "names counters of the core",
    "core/counters.h": "adds to counters, in every C file",
}
"""Infrastructure that runs everywhere, with the reason why no page needs to name it."""
SIMULATED = {
    "endpoint/cloud_link.py",
    "endpoint/session_thread.py",
    "net/command/driver.py",
    "net/command/session.py",
    "broker/records/journal.py",
    "broker/records/sqlite_store.py",
}
"""Threads, sockets and disks, which the simulator replaces; they are on the path in production."""


def named_in(*pages: str) -> set[str]:
    """Return the paths that some pages name."""
    texts = [(PAGES / f"{page}.md").read_text(encoding="utf-8") for page in pages]
    return {path for text in texts for path in NAMED.findall(text)}


def missing(traced: Iterable[str], *pages: str) -> list[str]:
    """Return the files that ran and that no page names, in the order of their first call."""
    named = named_in(*pages)
    return [path for path in traced if path not in named and path not in NOT_OF_A_JOURNEY]


def is_file(path: str) -> bool:
    return (ROOT / "gridstat" / path).is_file() or (ROOT / path).is_file()


@pytest.fixture
def grid() -> Iterator[JourneyGrid]:
    made = JourneyGrid()
    made.connection(PUBLISHER).publish("frequency", gridstat.FLOAT64, rate=60)
    yield made
    made.close()


def traced_subscription(grid: JourneyGrid, name: str) -> list[str]:
    qos = gridstat.qos(rate=10, latency_ms=100, redundancy=2)
    with traced_modules() as modules:
        subscription = grid.connection(name).subscribe(VARIABLE, qos=qos)
    assert len(subscription.contract.paths) == 2
    return modules


def test_the_page_of_a_subscription_names_every_module_on_its_path(grid: JourneyGrid) -> None:
    modules = traced_subscription(grid, NEAR)
    assert "broker/leaf_broker.py" in modules
    assert "router/status_router.py" in modules
    assert missing(modules, "subscription") == []


def test_the_page_of_a_subscription_names_what_the_simulator_replaces() -> None:
    assert named_in("subscription") >= SIMULATED


def test_the_page_between_clouds_names_every_module_that_a_cloud_alone_does_not_use(
    grid: JourneyGrid,
) -> None:
    modules = traced_subscription(grid, FAR)
    assert "broker/tree/coordinator.py" in modules
    assert missing(modules, "subscription", "inter-cloud-subscription") == []


def test_the_page_between_clouds_names_every_module_of_the_tree_on_its_path(
    grid: JourneyGrid,
) -> None:
    modules = traced_subscription(grid, FAR)
    tree = [path for path in modules if path.startswith(("broker/tree/", "broker/segments/"))]
    assert missing(tree, "inter-cloud-subscription") == []


def test_the_page_of_an_event_names_every_python_module_at_its_two_ends() -> None:
    ends = JourneyEnds()
    try:
        with traced_modules() as sending:
            assert ends.publication.send(60.0)
        ends.wait_for_event()
        with traced_modules() as receiving:
            ends.deliver()
        assert [event.value for event in ends.arrived] == [60.0]
    finally:
        ends.close()
    assert missing([*sending, *receiving, "core/_ends.pyx"], "status-event") == []


def test_the_page_of_an_event_names_every_c_file_on_its_path(tmp_path: Path) -> None:
    files = traced_core_files(tmp_path)
    assert {"core/sender.c", "core/forwarder.c", "core/receiver.c"} <= files
    assert missing(files, "status-event") == []


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_every_file_that_a_page_names_exists(page: str) -> None:
    stale = [path for path in sorted(named_in(page)) if not is_file(path)]
    assert stale == []


def test_what_no_page_needs_to_name_exists() -> None:
    assert [path for path in NOT_OF_A_JOURNEY if not is_file(path)] == []
