"""What every test shares: Hypothesis profiles, the feature marker, and the search for leaks.

A test that leaves a thread, a file descriptor or a child process behind fails, so that the next
one never pays for it.
"""

from __future__ import annotations

import gc
import os
import re
import time
from importlib import import_module
from typing import TYPE_CHECKING

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.holdings import Holdings

if TYPE_CHECKING:
    from collections.abc import Iterator

FEATURE_ROW = re.compile(r"S[0-4]-[1-9][0-9]*")
SETTLE_S = 2.0
"""How long a thread or process that was told to end may take to vanish."""

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
hypothesis.settings.register_profile(
    "brief", derandomize=True, deadline=None, max_examples=20, database=None
)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("feature"):
            if not mark.args or not all(_is_row(row) for row in mark.args):
                message = f"{item.nodeid}: feature{mark.args} must name rows such as S0-61"
                raise pytest.UsageError(message)


@pytest.fixture(scope="session", autouse=True)
def _libraries_have_started_their_threads() -> None:
    """Lets libraries open what they keep for good before anybody counts."""
    np.dot(np.ones((256, 256)), np.ones((256, 256)))
    pc.sum(pa.array([1, 2]))
    import_module("deltalake")


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(_libraries_have_started_their_threads: None) -> Iterator[None]:
    before = Holdings.now()
    yield
    deadline = time.monotonic() + SETTLE_S
    while complaint := Holdings.now().complaint_since(before):
        if time.monotonic() > deadline:
            pytest.fail(f"the test left behind: {complaint}", pytrace=False)
        gc.collect()
        time.sleep(0.01)


def _is_row(row: object) -> bool:
    return isinstance(row, str) and FEATURE_ROW.fullmatch(row) is not None
