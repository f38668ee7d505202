"""Fixtures and hooks of all tests: Hypothesis profiles, the feature marker, leak detection.

A test that leaves a thread, a file descriptor or a child process behind fails, so that the next
one never pays for it.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from lab.postgres import DatabaseServer
from tests.feature_plugin import FeatureRecorder, tell_features
from tests.holdings import nothing_left_behind
from tests.workers import ByRoom, turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

os.environ["OPENBLAS_NUM_THREADS"] = "1"
"""Before anybody imports NumPy, whose products otherwise start threads: a fork ends them, and the
next product starts new ones, which would count as left behind by the test that reckons."""

FEATURE_ROW = re.compile(r"S[0-4]-[1-9][0-9]*")
SETTLE_S = 20.0
"""Longest time for an ended thread or process to vanish."""

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
hypothesis.settings.register_profile(
    "brief", derandomize=True, deadline=None, max_examples=20, database=None
)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "record which tests of checklist rows passed, for `make features`"
    parser.addoption("--features", metavar="FILE", help=text)


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--features")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FeatureRecorder(Path(path)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which library the tests of sealing could not be run with."""
    if "ipsec-mb" not in import_module("gridstat.core._core").seal_backends():
        terminalreporter.write_line(
            "sealing was tested with OpenSSL alone: libIPSec_MB is missing (Debian: libipsec-mb1)"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByRoom:
    return ByRoom(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: turn(item.nodeid))
    for item in items:
        for mark in item.iter_markers("feature"):
            if not mark.args or not all(_is_row(row) for row in mark.args):
                message = f"{item.nodeid}: feature{mark.args} must name rows such as S0-61"
                raise pytest.UsageError(message)
        try:
            tell_features(item)
        except ValueError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from error


@pytest.fixture(scope="session", autouse=True)
def _libraries_have_started_their_threads() -> None:
    """Lets libraries open what they keep for good before anybody counts."""
    arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    compute.sum(arrow.array([1, 2]))
    import_module("deltalake")


@pytest.fixture(scope="session")
def database_server() -> Iterator[DatabaseServer]:
    """One for all tests, which may stop it if they start it again."""
    with DatabaseServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(_libraries_have_started_their_threads: None) -> Iterator[None]:
    with nothing_left_behind("test", within_s=SETTLE_S):
        yield


def _is_row(row: object) -> bool:
    return isinstance(row, str) and FEATURE_ROW.fullmatch(row) is not None
