"""Records which tests of checklist rows passed, for `make features`.

`pytest --features build/features.json` asks for it, as `make test` does. Each test carries its rows
in its report, so that the record is whole whichever worker ran the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tools.feature_marks import reach_of
from tools.feature_record import MarkedTest, source_digest, write_record

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PROPERTY = "feature"


def tell_features(item: pytest.Item) -> None:
    """Put the rows of a test's marks, with their reach, into what it will report."""
    path = item.nodeid.partition("::")[0]
    for mark in item.iter_markers("feature"):
        reach = reach_of(path, mark.kwargs.get("reach"))
        item.user_properties.append((PROPERTY, [reach, *mark.args]))


class FeatureRecorder:
    """Gathers the reports of a whole run, in the process that the run was started in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = source_digest()
        self._marks: dict[str, list[list[str]]] = {}
        self._called: set[str] = set()
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = [value for name, value in report.user_properties if name == PROPERTY]
        marks = cast("list[list[str]]", told)
        if not marks:
            return
        self._marks[report.nodeid] = marks
        if not report.passed:
            self._failed.add(report.nodeid)
        elif report.when == "call":
            self._called.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        passed = self._called - self._failed
        tests = [
            MarkedTest(test, tuple(rows), reach, test in passed)
            for test, marks in sorted(self._marks.items())
            for reach, *rows in marks
        ]
        write_record(self._path, self._digest, tests)
