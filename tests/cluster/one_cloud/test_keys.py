"""Keys of a real cloud: all channels are sealed, and rotations lose nothing, with a broker or
without."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.errors import SecurityNotSatisfiable
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, READY_WITHIN_S, WEST, Cloud, cloud_text
from tests.cluster.one_cloud.streams import Stream, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.endpoint.subscriber import Subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
QUICK = "[keys]\nepoch_s = 1\nreseed_s = 4\n"
SEALED_REJECTS = ("sealed_unknown_epoch", "sealed_replayed", "sealed_forged", "sealed_plain")


@pytest.fixture
def quick_cloud(tmp_path: Path) -> Iterator[Cloud]:
    """A cloud whose keys change every second."""
    with Cloud(tmp_path / "cloud", cloud_text(), more=QUICK) as running:
        running.start()
        yield running


def epochs_seen(cloud: Cloud) -> int:
    return int(cloud.survey()["keys"]["seeds_given"])


def missing(taken: Subscription) -> list[int]:
    slots = slots_of(taken)
    return sorted(set(range(slots[0], slots[-1] + 1)) - set(slots))


def test_rotations_lose_nothing_with_the_broker_and_without_it(quick_cloud: Cloud) -> None:
    publisher = quick_cloud.connect("c1/north/pmu", WEST[:1])
    subscriber = quick_cloud.connect("c1/centre/desk", EAST[:1])
    stream = publisher.publish("value", BuiltinType.FLOAT64, rate=60, delay_ms=DELAY_MS)
    taken = subscriber.subscribe(stream.name, qos=qos(latency_ms=5_000), keep_events=65_536)
    with Stream(stream):
        eventually(lambda: None if slots_of(taken) else "nothing has come")
        before = epochs_seen(quick_cloud)
        time.sleep(6)
        assert epochs_seen(quick_cloud) > before, "no fresh seed in 6 s"
        quick_cloud.daemons["broker"].kill()
        time.sleep(12)
        quick_cloud.daemons["broker"].start()
        quick_cloud.daemons["broker"].wait_ready()
        eventually(quick_cloud.complaint)
        time.sleep(3)
    assert missing(taken) == []
    for router in quick_cloud.survey()["routers"]:
        rejected = {name: router["counters"].get(name, 0) for name in SEALED_REJECTS}
        assert not any(rejected.values()), (router["name"], rejected)
        assert router["counters"]["channels_without_key"] == 0
    assert quick_cloud.survey()["keys"]["closed"] == []


def test_an_end_point_that_does_not_seal_is_refused_in_words(quick_cloud: Cloud) -> None:
    with pytest.raises(SecurityNotSatisfiable, match="endpoint_security"):
        quick_cloud.connect("c1/north/plain", WEST[:1], security="none")


@pytest.fixture
def plain_edges(tmp_path: Path) -> Iterator[Cloud]:
    """A cloud whose edge routers e0 and e2 do not seal the channels of end-points."""
    with Cloud(tmp_path / "cloud", cloud_text()) as running:
        for name in ("e0", "e2"):
            file = tmp_path / "cloud" / f"router-{name}.toml"
            file.write_text('endpoint_security = "none"\n' + file.read_text())
        running.start()
        yield running


def command(cloud: Cloud, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gridstat", *words, "--folder", str(cloud.folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_commands_attach_to_edges_that_do_not_seal_if_told_so(plain_edges: Cloud) -> None:
    wave = "c1/me/wave"
    publish = ("publish", wave, "--rate", "20/s", "--edge", "c1/e0")
    sealed = command(plain_edges, *publish)
    assert "endpoint_security" in sealed.communicate(timeout=READY_WITHIN_S)[1]
    assert sealed.returncode == 1
    publisher = command(plain_edges, *publish, "--security", "none")
    try:
        find = ("find", wave, "--edge", "c1/e2", "--security", "none")

        def unpublished() -> str | None:
            found, error = command(plain_edges, *find).communicate(timeout=READY_WITHIN_S)
            return None if wave in found else f"not published: {error}"

        eventually(unpublished, within_s=READY_WITHIN_S)
        subscriber = command(
            plain_edges, "subscribe", wave, "--count", "5", "--json", "--edge", "c1/e2",
            "--security", "none",
        )  # fmt: skip
        text, error = subscriber.communicate(timeout=READY_WITHIN_S)
    finally:
        publisher.terminate()
        publisher.communicate(timeout=READY_WITHIN_S)
    lines = [json.loads(line) for line in text.splitlines()]
    assert subscriber.returncode == 0, error
    assert len([line for line in lines if "is" not in line]) == 5, text
