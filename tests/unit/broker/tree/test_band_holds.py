"""Times before which a contract is raised, and before which others are lowered for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from gridstat.broker.tree.band_changes import FLAPS_WITHIN, BandHolds
from gridstat.broker.tree.tree_settings import TreeSettings

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_context import TreeContext

SETTINGS = TreeSettings(name="root")
FIRST_NS = FLAPS_WITHIN * SETTINGS.raise_after_ns
MOST_NS = FLAPS_WITHIN * SETTINGS.raise_after_ns_max


def holds_at() -> tuple[BandHolds, SimpleNamespace]:
    context = SimpleNamespace(now_ns=0, settings=SETTINGS)
    return BandHolds(cast("TreeContext", context)), context


def next_ask_ns(holds: BandHolds, clock: SimpleNamespace) -> int:
    """Return how long nobody is lowered for the contract `a` from now on, to the second."""
    begin_ns = clock.now_ns
    while not holds.may_ask("a"):
        clock.now_ns += 1_000_000_000
    return int(clock.now_ns - begin_ns)


def test_others_are_lowered_ever_more_rarely_for_a_contract_that_is_refused_all_the_same() -> None:
    holds, clock = holds_at()
    assert holds.may_ask("a")
    waited_ns = []
    for _ in range(5):
        holds.asked_in_vain("a")
        assert holds.may_ask("b")
        waited_ns.append(next_ask_ns(holds, clock))
    assert waited_ns == [
        min(MOST_NS, FIRST_NS * FLAPS_WITHIN**attempt) for attempt in range(len(waited_ns))
    ]


def test_a_request_in_vain_is_forgotten_after_a_long_time() -> None:
    holds, clock = holds_at()
    for _ in range(5):
        holds.asked_in_vain("a")
    clock.now_ns += FLAPS_WITHIN * MOST_NS
    holds.asked_in_vain("a")
    assert next_ask_ns(holds, clock) == FIRST_NS
