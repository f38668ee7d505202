"""Path ledgers of a contract: they name the path that loses, though both end in one edge router."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lab.grid_plan import link_name
from lab.relay import Direction, LinkFaults
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from tests.cluster.recovery.square import Facts, Square

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
ENOUGH = 30


def ledgers(square: Square, name: str) -> list[Facts]:
    found: list[Facts] = square.view.subscribed(name)["path_ledgers"]
    return found


def complaint_until_counted(square: Square, name: str, counts: int) -> str | None:
    told = ledgers(square, name)
    if [path for path in told if path["expected"] < counts or not path["is_counted"]]:
        return f"too little is counted: {told}"
    return None


def inner(path: Facts) -> str:
    """The router between the two edges."""
    _, middle, _ = path["routers"]
    return str(middle).partition("/")[2]


def test_the_lossy_one_of_two_paths_is_named_and_the_subscription_loses_nothing(
    square: Square,
) -> None:
    name = square.stream("two-paths", redundancy=2)
    eventually(lambda: complaint_until_counted(square, name, ENOUGH), within_s=60.0)
    assert [path["name"] for path in ledgers(square, name)] == ["path 1", "path 2"]
    lossy = inner(ledgers(square, name)[1])
    wire = link_name("e0", lossy)
    before = {inner(path): path for path in ledgers(square, name)}
    faults = LinkFaults(loss=0.3, seed=1)
    square.grid.network.set_faults(wire, faults, direction=Direction.FORWARD)

    def complaint() -> str | None:
        lost = {inner(path): path["lost"] for path in ledgers(square, name)}
        return None if lost[lossy] - before[lossy]["lost"] >= ENOUGH else f"lost: {lost}"

    eventually(complaint, within_s=60.0)
    square.grid.network.clear(wire)
    facts = square.view.subscribed(name)
    whole, harmed = facts["path_ledgers"]
    assert facts["lost"] == 0
    assert (inner(harmed), harmed["lost"] > 0) == (lossy, True)
    assert whole["lost"] == 0
    for path in (whole, harmed):
        assert path["expected"] == path["delivered"] + path["lost"]
    assert whole["first"] + harmed["first"] >= whole["expected"]
    assert_operators_are_told(square, name, lossy)


def assert_operators_are_told(square: Square, name: str, lossy: str) -> None:
    """Check the survey, which `gridstat top` and the metrics show, and `gridstat explain`."""

    def complaint() -> str | None:
        (found,) = [each for each in square.grid.survey()["subscriptions"] if each["name"] == name]
        paths = found["ledger"]["paths"] if found["ledger"] else []
        told = [inner(path) for path in paths if path["lost"]]
        return None if told == [lossy] else f"the survey tells of {told}"

    eventually(complaint, within_s=30.0)
    explained = square.grid.gridstat("explain", name)
    told = re.findall(
        r"path (\d): (.*), predicted.*\n      came by it: .* ([\d,]+) lost", explained
    )
    assert [(number, f"/{lossy} " in way) for number, way, lost in told if lost != "0"] == [
        ("2", True)
    ]
    assert len(told) == 2


def test_a_path_that_the_contract_has_left_keeps_its_ledger(square: Square) -> None:
    name = square.stream("left-path")
    eventually(lambda: complaint_until_counted(square, name, ENOUGH), within_s=60.0)
    (before,) = ledgers(square, name)
    wire = link_name("e0", inner(before))
    square.grid.network.cut(wire)

    def complaint() -> str | None:
        told = ledgers(square, name)
        is_moved = len(told) == 2 and told[0]["delivered"] >= ENOUGH
        return None if is_moved else f"not moved: {told}"

    eventually(complaint, within_s=60.0)
    square.grid.network.heal(wire)
    facts = square.view.subscribed(name)
    new, old = facts["path_ledgers"]
    assert [inner(new) == inner(before), inner(old) == inner(before)] == [False, True]
    assert [new["is_open"], old["is_open"]] == [True, False]
    assert old["delivered"] >= before["delivered"]
    assert new["delivered"] + old["delivered"] <= facts["delivered"]
