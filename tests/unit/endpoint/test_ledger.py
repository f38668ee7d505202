"""What a contract promised against what came, as it is summed up and told."""

from __future__ import annotations

from gridstat.endpoint.ledger import Ledger


def test_ledgers_of_one_subscription_add_up() -> None:
    first = Ledger(expected=5, delivered=4, lost=1, recovered=1, copies=(4,))
    second = Ledger(expected=3, delivered=3, duplicate=3, copies=(3, 3))
    assert first + second == Ledger(
        expected=8, delivered=7, lost=1, duplicate=3, recovered=1, copies=(7, 3)
    )


def test_what_is_told_to_the_cloud_leaves_nothing_out() -> None:
    entry = Ledger(expected=5, delivered=4, lost=1, recovered=1, copies=(4,)).entry(9)
    assert (entry.subscription_id, entry.expected, entry.delivered, entry.lost) == (9, 5, 4, 1)
    assert (entry.recovered, entry.copies) == (1, (4,))


def test_a_contract_over_which_nothing_came_is_not_blank() -> None:
    assert Ledger().is_blank
    assert not Ledger(expected=1, lost=1).is_blank
