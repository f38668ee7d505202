"""`gridstat pipeline`: wrong arguments are refused before Spark is started."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from gridstat.console.cli.main import app
from gridstat.console.cli.pipeline import progress_text
from gridstat.console.cli.pipeline_options import instant_ns
from gridstat.model.errors import Misuse
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.progress import Progress, write_progress

if TYPE_CHECKING:
    from pathlib import Path

NS_PER_S = 1_000_000_000
SOME = Progress("running", 3, 120, 100, 98, 2, 1, 50.0, 1.5, 7, 8)


def _failed(*words: str) -> str:
    result = CliRunner().invoke(app, ["pipeline", *words])
    assert result.exit_code == 2
    return result.output


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert instant_ns("1970-01-01T00:01") == 60 * NS_PER_S
    assert instant_ns("1970-01-01T01:00+01:00") == 0
    assert instant_ns("2026-11-16T12:00:00.000001") % NS_PER_S == 1_000


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Misuse, match="is no time"):
        instant_ns(text)


@pytest.mark.parametrize("text", ["1969-12-31", "2262-05-01", "9999-12-31"])
def test_a_time_that_no_stamp_can_be_of_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="before 1970, or after 2262"):
        instant_ns(text)


@pytest.mark.parametrize("command", ["query", "audit", "mine", "compact"])
def test_a_folder_without_a_pipeline_is_named(tmp_path: Path, command: str) -> None:
    words = [command, *(["select 1"] if command == "query" else [])]
    said = _failed(*words, "--into", str(tmp_path / "nothing"))
    assert "is no pipeline's folder" in said
    assert "gridstat pipeline run" in said


def test_a_part_of_the_log_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    part = ["--log-from", "2026-11-16T12:00", "--log-to", "2026-11-16T12:00"]
    said = _failed("query", "select 1", *part, "--into", str(tmp_path))
    assert "has no instant in it" in said


def test_status_before_the_first_batch_says_how_to_begin(tmp_path: Path) -> None:
    assert "no pipeline has run" in _failed("status", "--into", str(tmp_path))


def test_status_tells_how_far_a_pipeline_is(tmp_path: Path) -> None:
    write_progress(tmp_path, replace(SOME, updated_ns=time.time_ns()))
    with PipelineFolder(tmp_path).lock("ingest"):
        result = CliRunner().invoke(app, ["pipeline", "status", "--into", str(tmp_path)])
    assert result.exit_code == 0
    said = result.output.replace("\n", " ")
    assert re.search(r"running, last batch \d+ s ago: 100 of 120 records taken: 98 archived", said)
    result = CliRunner().invoke(app, ["pipeline", "status", "--into", str(tmp_path), "--json"])
    assert json.loads(result.output)["progress"]["batch"] == 3


def test_status_of_a_killed_pipeline_does_not_say_that_it_runs(tmp_path: Path) -> None:
    write_progress(tmp_path, SOME)
    result = CliRunner().invoke(app, ["pipeline", "status", "--into", str(tmp_path)])
    assert result.output.startswith("not running any more, last batch ")


def test_nothing_taken_is_said_in_words() -> None:
    assert progress_text({"state": "ended"}) == "nothing taken yet"
