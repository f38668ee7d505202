"""Names of classes: one name stands for one class inside the broker, so that a reader can tell."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.tidy.source import ROOT, assert_none, code_files, write_sample

if TYPE_CHECKING:
    from pathlib import Path

BROKER = "gridstat/broker"


def repeated_classes(root: Path) -> list[str]:
    """Public classes of the broker whose name another class of the broker has."""
    places: dict[str, list[str]] = {}
    for path in code_files(root, ".py"):
        if path.is_relative_to(root / BROKER):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path.relative_to(root)))
    return [
        f"{name}: {', '.join(sorted(found))}" for name, found in places.items() if len(found) > 1
    ]


def test_no_two_classes_of_the_broker_have_one_name() -> None:
    assert_none(repeated_classes(ROOT))


def test_a_class_name_that_is_used_twice_is_found(tmp_path: Path) -> None:
    for name in ("tree/a.py", "records/b.py"):
        write_sample(tmp_path, f"{BROKER}/{name}", "class Reach:\n    pass\n")
    write_sample(tmp_path, "gridstat/model/c.py", "class Reach:\n    pass\n")
    assert repeated_classes(tmp_path) == [
        "Reach: gridstat/broker/records/b.py, gridstat/broker/tree/a.py"
    ]
