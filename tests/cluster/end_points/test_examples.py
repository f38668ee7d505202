"""The examples run as their own help says, against a real cloud."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.command import Command
from tests.cluster.end_points.local_cloud import LocalCloud
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[3] / "examples"
PMU = "c1/north/pmu-1"
VOLTAGE = f"{PMU}/voltage"
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    with LocalCloud(tmp_path_factory.mktemp("cloud")) as made:
        made.certify(PMU)
        made.certify("c1/reader")
        yield made


@pytest.fixture
def publisher(cloud: LocalCloud, tmp_path: Path) -> Iterator[Command]:
    """The publishing example, until the test ends."""
    words = attached(cloud, "publish.py", "e0", "--name", PMU, "--rate", "30", "--count", "100000")
    folder = tmp_path / "publisher"
    folder.mkdir()
    with Command(folder, *words) as command:
        says(command, f"publishing {VOLTAGE}")
        yield command


def attached(cloud: LocalCloud, example: str, edge: str, *words: str) -> list[str]:
    """Return the arguments of an example that attaches to an edge of this cloud."""
    place = ["--edge", cloud.edge(edge), "--certificates", str(cloud.certificates)]
    return [sys.executable, "-u", str(EXAMPLES / example), *words, *place]


def says(command: Command, words: str) -> None:
    eventually(lambda: None if words in command.output else command.errors or command.output)


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_explains_itself(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / name), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "usage: " in text
    assert ("--edge" in text) == ("gridstat.connect" in (EXAMPLES / name).read_text())
    assert "--count" in text


def test_what_one_example_publishes_the_other_receives(
    cloud: LocalCloud, publisher: Command, tmp_path: Path
) -> None:
    assert publisher.process.poll() is None
    with Command(
        tmp_path, *attached(cloud, "subscribe.py", "e1", VOLTAGE, "--count", "5")
    ) as found:
        assert found.exit_code() == 0, found.errors
    assert "received 5 events" in found.output
    assert re.search(r"path c1/e0 → .*c1/e1, \d+ µs predicted", found.output)
    assert re.search(r"\d+\.\d+ \(average \d+\.\d+\) after -?\d+ µs", found.output)


def test_the_group_example_prints_complete_sets(
    cloud: LocalCloud, publisher: Command, tmp_path: Path
) -> None:
    assert publisher.process.poll() is None
    with Command(tmp_path, *attached(cloud, "group.py", "e1", VOLTAGE, "--count", "3")) as found:
        assert found.exit_code() == 0, found.errors
    assert len(re.findall(rf"slot \d+: {VOLTAGE}=\d+\.\d+", found.output)) == 3


def test_the_pattern_example_catches_the_publisher(
    cloud: LocalCloud, publisher: Command, tmp_path: Path
) -> None:
    assert publisher.process.poll() is None
    words = attached(cloud, "pattern.py", "e1", "c1/*/*/voltage", "--count", "1000")
    with Command(tmp_path, *words) as found:
        says(found, f"caught {VOLTAGE}")
        says(found, f"{VOLTAGE}=2")


def test_the_violations_example_notices_that_the_publisher_stops(
    cloud: LocalCloud, publisher: Command, tmp_path: Path
) -> None:
    words = attached(cloud, "violations.py", "e1", VOLTAGE, "--count", "3", "--latency-ms", "5000")
    with Command(tmp_path, *words) as found:
        says(found, f"watching {VOLTAGE}")
        publisher.process.kill()
        assert found.exit_code() == 0, found.errors
    assert len(re.findall(r"missing: slot \d+", found.output)) == 3
    assert "is extrapolated" in found.output


@pytest.fixture(scope="module")
def half_plain_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A cloud whose first edge takes end-points that cannot seal."""
    with LocalCloud(tmp_path_factory.mktemp("half-plain"), plain_edges=("e0",)) as made:
        made.certify("c1/north/pmu-c")
        made.certify("c1/reader")
        yield made


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    assert compiler is not None, "a C compiler is needed, as for the core"
    program = tmp_path_factory.mktemp("c") / "publish"
    build = [compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program)]
    build += [str(EXAMPLES / "publish.c"), "-lssl", "-lcrypto", "-lm"]
    built = subprocess.run(build, capture_output=True, text=True, check=False, timeout=60)
    assert built.returncode == 0, f"needs OpenSSL's headers (libssl-dev): {built.stderr}"
    return program


def in_c(cloud: LocalCloud, program: Path, *words: str) -> list[str]:
    place = ["--edge", cloud.edge("e0"), "--certificates", str(cloud.certificates)]
    return [str(program), "--name", "c1/north/pmu-c", *words, *place]


@pytest.mark.feature("S0-149")
def test_a_publisher_in_plain_c_registers_over_tls_and_is_heard(
    half_plain_cloud: LocalCloud, c_program: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "publisher"
    folder.mkdir()
    with Command(folder, *in_c(half_plain_cloud, c_program, "--count", "100000")) as publisher:
        says(publisher, "publishing c1/north/pmu-c/voltage as variable")
        subscribe = attached(
            half_plain_cloud, "subscribe.py", "e1", "c1/north/pmu-c/voltage", "--count", "5"
        )
        with Command(tmp_path, *subscribe) as found:
            assert found.exit_code() == 0, found.errors
    assert "received 5 events of c1/north/pmu-c/voltage" in found.output
    refused = subprocess.run(
        in_c(half_plain_cloud, c_program, "--quantity", "a b"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert refused.returncode == 1
    assert "is not hierarchical" in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_publisher_in_plain_c_leaves_in_order_when_it_is_stopped(
    half_plain_cloud: LocalCloud, c_program: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with Command(tmp_path, *in_c(half_plain_cloud, c_program, "--count", "100000")) as publisher:
        says(publisher, "publishing c1/north/pmu-c/voltage as variable")
        publisher.process.send_signal(signal.SIGPIPE)  # Means nothing to it.
        publisher.process.send_signal(number)
        assert publisher.exit_code() == 0, publisher.errors
    assert re.search(r"published (\d+) of \1 events", publisher.output)
