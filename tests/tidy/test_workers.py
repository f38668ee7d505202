"""The workers of `make test`: which tests share one, and which go first."""

from __future__ import annotations

import re

from tests.tidy.source import ROOT, code_files
from tests.workers import NAMESPACED, group, turn

CLUSTER = ROOT / "tests" / "cluster"
TAKES_PORTS = re.compile(
    r"\b(free_ports|DoubledCloud|LocalCloud|TwoClouds|tests\.cluster\.(one|two)_clouds?\.clouds?)\b"
)
"""Tests that start processes on free ports of the loopback interface."""


def test_all_clouds_on_the_loopback_interface_share_one_worker() -> None:
    a = "tests/cluster/one_cloud/test_replay.py::test_it"
    b = "tests/cluster/stand_by/test_takeover.py::test_it[2]"
    c = "tests/cluster/a_new_folder/test_one.py::test_it"
    assert group(a) == group(b) == group(c)


def test_all_clouds_in_namespaces_share_another() -> None:
    a = "tests/cluster/recovery/test_cloud.py::test_it"
    b = "tests/cluster/many_clouds/test_partition.py::test_it[2]"
    assert group(a) == group(b) != group("tests/cluster/one_cloud/test_replay.py::test_it")


def test_no_folder_in_namespaces_takes_ports_of_the_loopback_interface() -> None:
    takers = {
        path.relative_to(CLUSTER).parts[0]
        for path in code_files(ROOT, ".py")
        if path.is_relative_to(CLUSTER) and TAKES_PORTS.search(path.read_text(encoding="utf-8"))
    }
    assert {"end_points", "one_cloud", "stand_by", "two_clouds"} <= takers
    assert not takers & NAMESPACED
    assert all((CLUSTER / folder).is_dir() for folder in NAMESPACED)


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
