"""The two workers of `make test`: who meets whom, and who goes first."""

from __future__ import annotations

from tests.workers import group, turn


def test_all_that_start_processes_meet_in_one_worker() -> None:
    a = "tests/cluster/one_cloud/test_replay.py::test_it"
    b = "tests/cluster/recovery/test_square.py::test_it[2]"
    assert group(a) == group(b)


def test_the_spark_session_stays_one() -> None:
    assert group("tests/spark/test_audit.py::test_it") == group("tests/spark/test_mine.py::test_it")


def test_others_meet_by_file() -> None:
    path = "tests/unit/net/test_frames.py"
    assert group(f"{path}::test_it[a::b]") == group(f"{path}::test_that") == path
    assert group(path) != group("tests/unit/net/test_sessions.py")


def test_the_long_rooms_go_first_and_spark_after_its_classes_are_archived() -> None:
    rooms = ["unit/model", "spark", "tidy", "cluster/parts"]
    rooms.sort(key=lambda room: turn(f"tests/{room}/test_one.py::test_it"))
    assert rooms == ["cluster/parts", "tidy", "spark", "unit/model"]
