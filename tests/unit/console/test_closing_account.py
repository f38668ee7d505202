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


def held_up(*gaps: tuple[int, int]) -> dict[str, Any]:
    slots = sum(last - first + 1 for first, last in gaps)
    return {**PUBLISHED, "left_out": [{"variables": ["c1/p/v"], "slots": slots, "gaps": gaps}]}


def test_what_was_left_out_is_told_and_nobody_is_due_it() -> None:
    found = account(pmus=held_up((110, 118)), subscribers=report(from_slot=100, delivered=91))
    assert (found.published, found.left_out) == (91, 9)
    assert found.is_settled
    assert found.as_json()["left_out"] == 9
    assert "9 events left out" in found.as_text()


def test_slots_left_out_are_none_of_a_loss_beside_them() -> None:
    found = account(
        pmus=held_up((90, 103), (110, 118)),
        subscribers=report(from_slot=100, delivered=40, every=2),
    )
    [one] = found.subscriptions
    assert (one.due, one.missing) == (50 - 2 - 5, 3)
    assert not found.is_settled


def test_without_any_gap_nothing_is_said_to_be_left_out() -> None:
    found = account(pmus=PUBLISHED, subscribers=report(from_slot=100, delivered=100))
    assert found.left_out == 0
    assert "left out" not in found.as_text()
