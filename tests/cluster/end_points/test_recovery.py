"""End-points whose edge, link or own process fails, and who come back."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gridstat
from gridstat.model.errors import NoSuchVariable
from lab.declared_delay import DELAY_MS
from tests.cluster.command import Command
from tests.cluster.end_points.feeding import feeding
from tests.cluster.end_points.local_cloud import LocalCloud
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
EXAMPLES = Path(__file__).parents[3] / "examples"
RATE = 50
PMU = "c1/north/pmu-1"
WAS_RESTARTED = 3
GRACE_S = 8.0
"""Within it the restarted publisher must be back, however busy the machine; a test waits for it."""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    with LocalCloud(tmp_path) as made:
        yield made


def becomes(said: list[bool], *, expected: bool) -> None:
    """Wait until the publisher's next sends return this value."""
    at = len(said)
    eventually(lambda: None if expected in said[at:] else f"send says {said[-1:]}")


def is_up(cloud: LocalCloud, name: str) -> bool:
    """Return whether the broker knows of a session with an end-point."""
    ends = cloud.survey()["end_points"]
    return any(each["is_up"] for each in ends if each["name"] == name)


def says(command: Command, word: str) -> None:
    eventually(lambda: None if word in command.output else command.errors or "silence")


@pytest.mark.feature("S0-28", "S0-118", "S0-120", "S1-5")
def test_send_fails_while_the_only_edge_is_dead_and_works_when_it_is_back(
    cloud: LocalCloud,
) -> None:
    with cloud.connect(PMU, ("e0",)) as pmu, cloud.connect("c1/reader", ("e1",)) as reader:
        voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
        found = reader.subscribe(voltage.name)
        before = voltage.variable.variable_id
        with feeding(voltage, RATE) as said:
            eventually(lambda: None if found.value is not None else "no value")
            cloud.kill("e0")
            becomes(said, expected=False)
            assert not pmu.is_connected
            cloud.start("e0")
            becomes(said, expected=True)
            seen_ns = found.created_ns
            eventually(lambda: None if found.created_ns > seen_ns else "nothing new came")
        assert voltage.variable.variable_id == before
        assert found.error_code == 0


@pytest.mark.feature("S0-118", "S0-121")
def test_a_subscriber_on_two_edges_does_not_notice_that_one_is_gone(cloud: LocalCloud) -> None:
    with cloud.connect(PMU) as pmu, cloud.connect("c1/reader") as reader:
        voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE, delay_ms=DELAY_MS)
        violations: list[gridstat.Violation] = []
        events: list[gridstat.Delivery] = []
        # From the grant on whatever is not published is missing: publishing begins before it.
        with feeding(voltage, RATE) as said:
            found = reader.subscribe(
                voltage.name,
                qos=gridstat.qos(redundancy=2, latency_ms=5_000),
                on_event=events.append,
                on_violation=violations.append,
            )
            eventually(lambda: None if len(events) >= RATE else "no events")
            cloud.pause("e0")
            eventually(lambda: None if reader.edges == ("c1/e1",) else f"{reader.edges}")
            assert reader.is_connected
            cloud.resume("e0")
            eventually(lambda: None if len(reader.edges) == 2 else f"{reader.edges}")
            eventually(lambda: None if len(pmu.edges) == 2 else f"{pmu.edges}")
        assert all(said)
        eventually(lambda: None if events[-1].value == len(said) - 1 else f"{events[-1]} is last")
        assert violations == []
        stamps = [event.created_ns for event in events]
        assert len(set(stamps)) == len(stamps)
        found.unsubscribe()  # What has not come by now is lost, however patient the contract.
        assert found.ledger().lost == 0


@pytest.mark.feature("S0-119")
def test_a_publisher_that_was_killed_comes_back_and_unsubscribes_nobody(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    certificates = cloud.certify(PMU)
    words: list[str | Path] = [sys.executable, EXAMPLES / "publish.py", "--edge", cloud.edge("e0")]
    words += ["--name", PMU, "--certificates", certificates, "--count", "100000"]
    with cloud.connect("c1/reader", ("e1",)) as reader:
        with Command(tmp_path, *words) as first:
            says(first, "publishing")
            found = reader.subscribe(f"{PMU}/voltage")
            eventually(lambda: None if found.value is not None else "no value")
            first.signal(signal.SIGKILL)
        last_ns = found.created_ns
        with Command(tmp_path, *words) as second:
            says(second, "publishing")
            eventually(lambda: None if found.created_ns > last_ns else "nothing new came")
        assert found.error_code == 0
        assert not found.is_over


@pytest.mark.feature("S0-119")
def test_a_publisher_that_leaves_for_a_moment_unsubscribes_nobody(cloud: LocalCloud) -> None:
    with cloud.connect("c1/reader", ("e1",)) as reader:
        with cloud.connect(PMU, ("e0",)) as first:
            name = first.publish("voltage", gridstat.FLOAT64, rate=RATE).name
            found = reader.subscribe(name)
            first.close(keep=True)
        eventually(lambda: "the broker has noticed nothing" if is_up(cloud, PMU) else None)
        with cloud.connect(PMU, ("e0",)) as second:
            with feeding(second.publish("voltage", gridstat.FLOAT64, rate=RATE), RATE):
                eventually(lambda: None if found.value is not None else "no value")
            assert found.error_code == 0
            assert not found.is_over


@pytest.mark.feature("S0-119")
def test_what_a_killed_publisher_does_not_publish_again_is_purged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with LocalCloud(tmp_path, grace_s=GRACE_S) as cloud:
        words: list[str | Path] = [sys.executable, EXAMPLES / "publish.py"]
        words += ["--edge", cloud.edge("e0"), "--name", PMU, "--count", "100000"]
        words += ["--certificates", cloud.certify(PMU)]
        with cloud.connect("c1/reader", ("e1",)) as reader:
            with Command(tmp_path, *words) as first:
                says(first, "publishing")
                found = reader.subscribe(f"{PMU}/voltage")
                first.signal(signal.SIGKILL)
            eventually(lambda: "the broker has a session" if is_up(cloud, PMU) else None)
            caplog.clear()
            with cloud.connect(PMU, ("e0",)) as pmu:
                assert f"attached edge=c1/e0 code={WAS_RESTARTED}" in caplog.text
                current = pmu.publish("current", gridstat.FLOAT64, rate=RATE)
                eventually(lambda: None if found.error_code else "not told")
                assert found.take_error_code() == NoSuchVariable.code
                assert found.is_over
                facts = cloud.survey()
                assert [each["name"] for each in facts["publications"]] == [current.name]
                assert facts["subscriptions"] == []


@pytest.mark.feature("S0-119")
def test_a_subscriber_that_was_killed_has_left_no_subscription_when_it_is_back(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    certificates = cloud.certify("c1/reader")
    words: list[str | Path] = [sys.executable, EXAMPLES / "subscribe.py", f"{PMU}/voltage"]
    words += ["--edge", cloud.edge("e1"), "--certificates", certificates, "--count", "100000"]
    with cloud.connect(PMU, ("e0",)) as pmu:
        voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
        with feeding(voltage, RATE):
            with Command(tmp_path, *words) as first:
                says(first, "after")
                first.signal(signal.SIGKILL)
            with cloud.connect("c1/reader", ("e1",)):
                subscribers = [each["subscriber"] for each in cloud.survey()["subscriptions"]]
                assert "c1/reader" not in subscribers
