"""Changes as `gridstat subscribe` prints them: lines for people, and JSON."""

from __future__ import annotations

import json
from io import StringIO

from rich.console import Console

from gridstat.console.cli.subscribe import Printer
from gridstat.endpoint.change import Change, ChangeKind, Subject
from gridstat.endpoint.change_stream import ChangeFollowers
from gridstat.endpoint.contract import Contract
from gridstat.net.command.endpoint_messages import GrantedPath

LOST = Change(ChangeKind.EDGE_LOST, Subject.EDGE, "c1/e0", 1_500_000_000, "1 left", edges_left=1)
LOWERED = Change(
    ChangeKind.LOWERED,
    Subject.SUBSCRIPTION,
    "c1/a/v",
    2_000_000_000,
    "path 1 is down\nforged line",
    code=1034,
    contract=Contract(
        1,
        None,
        {},
        paths=(GrantedPath(routers=("c1/e0", "c1/e1"), channel_ids=(1,), latency_us=5),),
        paths_down=("path 1",),
    ),
)


def printed(*changes: Change, as_json: bool) -> list[str]:
    followers = ChangeFollowers(lambda work: work())
    text = StringIO()
    console = Console(file=text, width=40)
    printer = Printer(console, as_json=as_json, changes=followers.stream(8))
    for change in changes:
        followers.notify(change)
    printer.print_some(0)
    assert printer.printed == 0  # Changes are no events: --count does not count them.
    return text.getvalue().splitlines()


def test_a_change_is_one_line_whatever_its_reason_says() -> None:
    assert printed(LOST, LOWERED, as_json=False) == [
        "1.500000 edge_lost edge c1/e0: 1 left",
        "2.000000 lowered subscription c1/a/v: path 1 is down?forged line (code 1034)",
    ]


def test_a_change_in_json_has_all_its_facts() -> None:
    lost, lowered = (json.loads(line) for line in printed(LOST, LOWERED, as_json=True))
    assert (lost["is"], lost["kind"], lost["edges_left"]) == ("change", "edge_lost", 1)
    assert lowered == {
        "is": "change",
        "kind": "lowered",
        "subject": "subscription",
        "name": "c1/a/v",
        "at_ns": 2_000_000_000,
        "reason": "path 1 is down\nforged line",
        "code": 1034,
        "is_over": False,
        "paths": [["c1/e0", "c1/e1"]],
        "path_labels": ["c1/e0>c1/e1"],
        "paths_down": ["path 1"],
    }
