"""The account at the end of `gridstat up`: nothing that is missing stays unsaid."""

from __future__ import annotations

from typing import Any

from gridstat.console.live.closing_account import ClosingAccount, closing_account

PUBLISHED: dict[str, Any] = {"is": "paused", "published": {"c1/p/v": [100, 199]}}


def report(*, from_slot: int, delivered: int, every: int = 1) -> dict[str, Any]:
    one = {
        "subscriber": "c1/desk",
        "variable": "c1/p/v",
        "every": every,
        "from_slot": from_slot,
        "delivered": delivered,
        "duplicates": 0,
    }
    return {"is": "report", "subscriptions": [one]}


def account(**reports: dict[str, Any]) -> ClosingAccount:
    return closing_account(reports, seconds=10.0, restarted=())


def test_a_subscription_that_got_nothing_misses_all_that_was_published_since_its_grant() -> None:
    found = account(pmus=PUBLISHED, subscribers=report(from_slot=150, delivered=0))
    assert [one.missing for one in found.subscriptions] == [50]
    assert not found.is_settled


def test_what_was_published_before_the_grant_or_not_at_all_is_not_due() -> None:
    early = account(pmus=PUBLISHED, subscribers=report(from_slot=7, delivered=50, every=2))
    assert early.is_settled
    assert account(pmus=PUBLISHED, subscribers=report(from_slot=500, delivered=0)).is_settled


def test_without_an_answer_of_the_subscribers_nothing_is_whole() -> None:
    found = closing_account({"pmus": PUBLISHED}, seconds=1.0, restarted=(), silent=["subscribers"])
    assert not found.is_settled
    assert found.as_json()["silent"] == ["subscribers"]
    assert "NOT WHOLE" in found.as_text()
