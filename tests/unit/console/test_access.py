"""How commands find a cloud, and the brokers that stand by for one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.console.access import load_access

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
cloud = "c1"
broker = { host = "192.0.2.1", port = 7100 }
name_service = { host = "192.0.2.1", port = 7101 }
[[tree]]
name = "root"
host = "192.0.2.9"
port = 7000
[[tree]]
name = "c1"
parent = "root"
host = "192.0.2.1"
port = 7100
[[stand_by]]
name = "c1"
host = "192.0.2.2"
port = 7100
"""


def test_a_broker_is_looked_for_where_it_stands_by_too(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text(TEXT, encoding="utf-8")
    access = load_access(tmp_path)
    assert access.brokers == [("192.0.2.1", 7100), ("192.0.2.2", 7100)]
    assert access.beside("root").brokers == [("192.0.2.9", 7000)]
