"""Access rules of a running cloud, by the library and by the command."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import gridstat
from gridstat.model.errors import NotAuthorised
from lab.open_access import OPEN_TOML
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, WEST, Cloud, cloud_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.change import Change

pytestmark = pytest.mark.cluster

PMU, DESK = "c1/hill/pmu-1", "c1/desk"
FREQUENCY = f"{PMU}/frequency"
RULES = """
[[access_rule]]
name = "devices"
who = "c1/*/*"
may = ["publish"]
what = "c1/*/*/*"
owner = true
"""
LAST_EVENT_S_MAX = 1.0


@pytest.fixture(scope="module")
def running_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    text = cloud_text().replace(OPEN_TOML, RULES)
    with Cloud(tmp_path_factory.mktemp("cloud"), text) as running:
        running.start()
        yield running


@pytest.fixture
def cloud(running_cloud: Cloud) -> Iterator[Cloud]:
    yield running_cloud
    running_cloud.close_connections()


def access(cloud: Cloud, *words: str) -> dict[str, Any]:
    """`gridstat access ... --json`, as an operator would type it."""
    done = subprocess.run(
        [sys.executable, "-m", "gridstat", "access", *words, "--json", "-f", str(cloud.folder)],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def let_desk_read(cloud: Cloud) -> None:
    rule = ("--who", DESK, "--may", "subscribe", "--may", "find", "--what", "c1/hill/**")
    access(cloud, "grant", "desk", *rule)


class Stream:
    """A publisher at 60 values a second, until it is closed."""

    def __init__(self, publication: gridstat.Publication) -> None:
        self._publication = publication
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(1 / 60):
            self._publication.send(50.0)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


def test_a_stranger_is_refused_with_the_command_that_would_let_it_in(cloud: Cloud) -> None:
    desk = cloud.connect(DESK, EAST)
    with pytest.raises(NotAuthorised) as found:
        desk.subscribe(FREQUENCY)
    assert "gridstat access grant c1-desk-subscribe-" in found.value.hint
    assert f" --at c1 --who '{DESK}'" in found.value.hint
    with pytest.raises(NotAuthorised):
        desk.find("c1/**")
    with pytest.raises(NotAuthorised):
        desk.publish("load", gridstat.FLOAT64, rate=1)
    with pytest.raises(NotAuthorised):
        desk.subscribe_pattern("c1/**")


def test_a_revoked_rule_ends_the_events_within_a_second_and_says_why(cloud: Cloud) -> None:
    let_desk_read(cloud)
    pmu, desk = cloud.connect(PMU, WEST), cloud.connect(DESK, EAST)
    arrived: list[float] = []
    changes: list[Change] = []
    stream = Stream(pmu.publish("frequency", gridstat.FLOAT64, rate=60))
    wish = gridstat.qos(rate=60, latency_ms=200, redundancy=2)
    desk.subscribe(
        FREQUENCY,
        qos=wish,
        on_event=lambda _: arrived.append(time.monotonic()),
        on_change=changes.append,
    )
    eventually(lambda: None if len(arrived) > 30 else "no events", within_s=20)
    facts = access(cloud, "revoke", "desk")
    done = time.monotonic()
    assert facts["ended"] == 1
    eventually(lambda: None if changes else "no notice", within_s=20)
    time.sleep(2 * LAST_EVENT_S_MAX)
    stream.close()
    assert max(arrived) - done <= LAST_EVENT_S_MAX
    (change,) = [each for each in changes if each.is_over]
    assert change.code == NotAuthorised.code
    assert "rule desk was revoked" in change.reason
    with pytest.raises(NotAuthorised):
        desk.subscribe(FREQUENCY)


def test_a_publication_that_a_rule_ended_comes_back_with_the_rule(cloud: Cloud) -> None:
    let_desk_read(cloud)
    pmu, desk = cloud.connect(PMU, WEST), cloud.connect(DESK, EAST)
    publication = pmu.publish("frequency", gridstat.FLOAT64, rate=60)
    stream = Stream(publication)
    pattern = desk.subscribe_pattern("c1/hill/**")
    eventually(lambda: None if pattern.matches else "no match", within_s=20)
    access(cloud, "revoke", "devices")
    eventually(lambda: None if publication.error_code == 1015 else "not told", within_s=20)
    eventually(lambda: None if not pattern.matches else "still matched", within_s=20)
    rule = ("--who", "c1/*/*", "--may", "publish", "--what", "c1/*/*/*", "--owner")
    access(cloud, "grant", "devices", *rule)
    eventually(lambda: None if publication.is_registered else "not registered", within_s=60)
    eventually(lambda: None if pattern.matches else "not matched again", within_s=20)
    stream.close()


def test_a_pattern_whose_rule_is_revoked_is_over(cloud: Cloud) -> None:
    let_desk_read(cloud)
    desk = cloud.connect(DESK, EAST)
    pattern = desk.subscribe_pattern("c1/hill/**")
    access(cloud, "revoke", "desk")
    eventually(lambda: None if pattern.is_over else "not over", within_s=20)


def test_the_command_lists_and_explains(cloud: Cloud) -> None:
    let_desk_read(cloud)
    rows = {row["name"]: row for row in access(cloud, "list")["rules"]}
    assert rows["desk"]["from"] == "run time"
    yes = access(cloud, "why", DESK, "subscribe", FREQUENCY)
    assert yes["is_allowed"]
    assert yes["clouds"][0]["rule"]["name"] == "desk"
    no = access(cloud, "why", DESK, "subscribe", FREQUENCY, "--priority", "1")
    assert not no["is_allowed"]
    assert "priority 3 or below, not at 1" in no["clouds"][0]["reason"]
    assert "priority_best = 1" in no["clouds"][0]["needed"]
    assert access(cloud, "why", "operator/c1/alice", "flood", FREQUENCY)["is_allowed"]


def test_observing_allows_everything_and_lists_what_rules_would_be_needed(cloud: Cloud) -> None:
    access(cloud, "mode", "observe")
    try:
        stranger = cloud.connect("c1/stranger", WEST)
        stranger.publish("load", gridstat.FLOAT64, rate=1)
        found = access(cloud, "why", "--observed")
        assert found["mode"] == "observe"
        wishes = {(each["who"], each["action"]) for each in found["refusals_observed"]}
        assert ("c1/stranger", "publish") in wishes
    finally:
        assert access(cloud, "mode", "enforce")["mode"] == "enforce"
    assert cloud.survey()["access"]["mode"] == "enforce"
    with pytest.raises(gridstat.GridStatError):
        cloud.explain("c1/stranger/load")


def test_a_listener_to_floods_is_told_when_its_rule_is_revoked(cloud: Cloud) -> None:
    access(cloud, "grant", "floods", "--who", DESK, "--may", "flood", "--what", "**")
    with cloud.connect(DESK, EAST).subscribe_flooded() as flooded:
        assert flooded.refusal == ""
        assert access(cloud, "revoke", "floods")["ended"] == 1
        eventually(lambda: None if flooded.refusal else "no notice", within_s=20)
        assert "rule floods was revoked" in flooded.refusal
