"""Output of `gridstat explain` on the paths of a contract."""

from __future__ import annotations

from typing import Any

import pytest

from gridstat.console.cli.explain import described, explained, explained_subscription
from gridstat.console.cli.figures import milliseconds

UPPER, LOWER, OLD = (["c1/e0", f"c1/i{number}", "c1/e1"] for number in range(3))


def counted(routers: list[str], lost: int, **facts: object) -> dict[str, Any]:
    return {
        "name": "path 1",
        "routers": routers,
        "expected": 1_000,
        "delivered": 1_000 - lost,
        "lost": lost,
        "first": 7,
        "is_open": True,
        "is_counted": True,
        **facts,
    }


def lines(ledger: dict[str, Any] | None, *paths: list[str]) -> list[str]:
    qos = {"every": 1, "latency_us": 4_000, "redundancy": 2, "priority": 1}
    facts = {
        "subscriber": "c1/centre",
        "state": "granted",
        "granted": {"0": qos},
        "paths": [{"routers": routers, "latency_us": 500} for routers in paths],
        "ledger": ledger,
    }
    return list(explained_subscription(facts))


def test_each_path_is_followed_by_what_came_by_it() -> None:
    ledger = {"paths": [counted(UPPER, 0), counted(LOWER, 40)]}
    found = lines(ledger, UPPER, LOWER)
    assert found[3] == "      came by it: 1,000 expected, 1,000 delivered, 7 first, 0 lost"
    assert found[5] == "      came by it: 1,000 expected, 960 delivered, 7 first, 40 lost"


def test_paths_that_share_a_router_are_told_as_link_disjoint() -> None:
    facts = {
        "subscriber": "c1/centre",
        "state": "granted",
        "granted": {"0": {"every": 1, "latency_us": 4_000, "redundancy": 2, "priority": 1}},
        "paths": [],
    }
    told = "    its paths are link-disjoint: they share a router, and no channel"
    assert told in list(explained_subscription({**facts, "is_node_disjoint": False}))
    assert told not in list(explained_subscription({**facts, "is_node_disjoint": True}))


def test_paths_that_the_contract_has_left_come_last() -> None:
    ledger = {"paths": [counted(UPPER, 0), counted(OLD, 9, is_open=False)]}
    assert lines(ledger, UPPER)[-1] == (
        "    earlier: c1/e0 → c1/i2 → c1/e1: 1,000 expected, 991 delivered, 7 first, 9 lost"
    )


def test_the_only_path_has_the_counts_of_the_contract() -> None:
    ledger = {"paths": [], "expected": 5, "delivered": 4, "lost": 1}
    assert lines(ledger, UPPER)[-1] == "      came by it: 5 expected, 4 delivered, 4 first, 1 lost"


def test_paths_that_nobody_can_tell_apart_have_no_figures() -> None:
    ledger = {"paths": [counted(UPPER, 0, is_counted=False), counted(LOWER, 0)]}
    assert "cannot be distinguished" in lines(ledger, UPPER, LOWER)[3]


def test_without_a_report_only_the_paths_are_told() -> None:
    assert len(lines(None, UPPER, LOWER)) == 4


def test_paths_of_which_some_slots_stand_for_all_are_told_as_reckoned() -> None:
    ledger = {"paths": [counted(UPPER, 0, one_in=4), counted(LOWER, 0)]}
    found = lines(ledger, UPPER, LOWER)
    assert found[3].endswith("0 lost (reckoned, at times from one in 4 slots)")
    assert found[5].endswith("0 lost")


def test_a_broker_that_tells_no_ledgers_or_none_by_path_is_understood() -> None:
    facts = {"subscriber": "c1/centre", "state": "granted", "granted": {}}
    older = {**facts, "paths": [{"routers": UPPER, "latency_us": 500}]}
    assert list(explained_subscription(older))[-1].endswith("predicted 0.5 ms")
    ledger = {"expected": 5, "delivered": 4, "lost": 1}
    assert list(explained_subscription({**older, "ledger": ledger}))[-1].endswith("1 lost")


def test_a_variable_is_described_by_how_it_comes() -> None:
    period = {"seconds": 1, "per_seconds": 30}
    assert described({"period": period}) == "published every 1/30 s"
    replayed = described({"period": period, "replay_speed": 10})
    assert replayed == "replayed, every 1/30 s, up to 10 times as fast"
    assert described({"period": None, "is_alert": True}) == "aperiodic, an alert"


def piece(owner: str, routers: list[str], channel_id: int) -> dict[str, Any]:
    return {"owner": owner, "routers": routers, "channel_ids": [channel_id], "latency_us": 400}


def test_a_contract_between_clouds_is_told_segment_by_segment_and_whose_each_is() -> None:
    way = ["c1/e0", "c1/b0", "c2/b0", "c2/e0"]
    pieces = [
        piece("c1", way[:2], 3),
        piece("root", way[1:3], 1 << 31 | 1),
        piece("c2", way[2:], 5),
    ]
    contract: dict[str, Any] = {
        "subscriber": "c2/desk",
        "state": "granted",
        "contract": "c2#7",
        "owner": "root",
        "granted": {},
        "paths": [{"routers": way, "latency_us": 2_500, "pieces": pieces}],
        "ledger": None,
    }
    segment = {"segment": {"contract": "c2#7", "stage": "committed"}, "paths": []}
    other = {"segment": {"contract": "c3#1", "stage": "reserved"}, "paths": [{"routers": way[:2]}]}
    facts = {
        "name": "c1/hill/f",
        "variable": {"variable_id": 4, "is_alert": True},
        "publisher": "c1/hill",
        "edges": ["c1/e0"],
        "subscriptions": [segment, other],
        "channels": [],
        "elsewhere": [{"subscriptions": [contract], "channels": []}],
        "silent": {"c3": "no answer"},
    }
    assert list(explained(facts))[2:] == [
        "  a segment of contract c3#1 (reserved)",
        "    path 1: c1/e0 → c1/b0",
        "  taken by c2/desk (granted, contract c2#7 of root)",
        "    path 1: c1/e0 → c1/b0 → c2/b0 → c2/e0, predicted 2.5 ms",
        "      segment of c1: c1/e0 → c1/b0, 0.4 ms",
        "      channel of root: c1/b0 → c2/b0, 0.4 ms",
        "      segment of c2: c2/b0 → c2/e0, 0.4 ms",
        "  cloud c3 does not answer, and may take it too: no answer",
    ]


@pytest.mark.parametrize(
    ("latency_us", "words"),
    [(500, "0.5 ms"), (12_345, "12.3 ms"), (99_000, "99 ms"), (2_000_000, "2,000 ms")],
)
def test_latencies_are_told_without_powers_of_ten(latency_us: int, words: str) -> None:
    assert milliseconds(latency_us) == words
