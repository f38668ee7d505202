"""The law of bands: priorities in order, max-min fair within one, and nobody below its band."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gridstat.model.band_law import BandedContract, Carriage, split
from gridstat.model.rate_law import union_rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gridstat.model.band_law import Element

Network: TypeAlias = "tuple[list[BandedContract], list[Carriage], dict[Element, Fraction]]"
RATE = Fraction(60)


def alone(number: int, priority: int = 3, *, worst: int = 60, best: int = 1) -> BandedContract:
    """A contract to a variable of its own, whose only hop is the carriage of its number."""
    return BandedContract(number, priority, RATE, best, worst, worst, (number,))


def channel(*contracts: BandedContract, room: int) -> dict[int, int] | None:
    """Split one channel of so many events a second among contracts to different variables."""
    carriages = [Carriage(RATE, ((1, 1),)) for _ in contracts]
    return split(contracts, carriages, {1: Fraction(room)})


def test_what_fits_is_left_alone() -> None:
    assert channel(alone(0), alone(1), room=120) == {0: 1, 1: 1}


def test_thirty_share_what_ten_would_fill() -> None:
    found = channel(*(alone(number) for number in range(30)), room=600)
    assert found == dict.fromkeys(range(30), 3)


def test_the_fewest_are_lowered_and_differ_by_one_step() -> None:
    found = channel(*(alone(number) for number in range(10)), room=540)
    assert found is not None
    assert sorted(found.values()) == [1] * 8 + [2] * 2


def test_a_higher_priority_has_its_full_rate_first() -> None:
    found = channel(*(alone(number) for number in range(30)), alone(30, 1), room=600)
    assert found is not None
    assert found[30] == 1
    assert sorted(found.values())[1:] == [3] * 18 + [4] * 12


def test_the_lowest_priority_goes_first_and_the_next_only_after_it() -> None:
    found = channel(alone(0, 1), alone(1, 2), alone(2, 6, worst=4), room=105)
    assert found == {0: 1, 1: 2, 2: 4}


def test_below_the_bands_there_is_no_split() -> None:
    assert channel(alone(0, worst=2), alone(1, worst=2), room=59) is None


def test_equals_keep_what_they_have() -> None:
    lowered = {1, 4}
    some = [replace(alone(number), present=1 + (number in lowered)) for number in range(10)]
    assert channel(*some, room=540) == {number: 1 + (number in lowered) for number in range(10)}


def test_a_contract_whose_lowering_frees_nothing_is_not_lowered() -> None:
    """Two take one variable on the channel; a third takes another, and must give way instead."""
    shared = [
        BandedContract(0, 1, RATE, 1, 1, 1, (0,)),
        BandedContract(1, 6, RATE, 1, 60, 1, (0,)),
        BandedContract(2, 3, RATE, 1, 60, 1, (1,)),
    ]
    found = split(shared, [Carriage(RATE, ((1, 1),)) for _ in range(2)], {1: Fraction(90)})
    assert found == {0: 1, 1: 1, 2: 2}


def test_divisors_that_others_take_count_too() -> None:
    here = [BandedContract(0, 3, RATE, 1, 60, 1, (0,))]
    found = split(here, [Carriage(RATE, ((1, 1),), fixed=(2,))], {1: Fraction(40)})
    assert found == {0: 2}  # Every third and every second slot together are two of three.


def test_each_channel_has_its_own_limit() -> None:
    """One wide contract over a narrow channel does not hold back those beside it."""
    some = [*(alone(number) for number in range(4))]
    carriages = [Carriage(RATE, ((1 if number < 2 else 2, 1),)) for number in range(4)]
    found = split(some, carriages, {1: Fraction(30), 2: Fraction(80)})
    assert found in ({0: 4, 1: 4, 2: 2, 3: 2}, {0: 4, 1: 4, 2: 1, 3: 3})


@st.composite
def networks(draw: st.DrawFn, *, is_shared: bool) -> Network:
    """Contracts over a few channels each; with `is_shared` several may take one variable."""
    channels = draw(st.integers(1, 4))
    carriages: list[Carriage] = []
    index: dict[tuple[int, int], int] = {}
    contracts = []
    for number in range(draw(st.integers(1, 12))):
        stream = draw(st.integers(0, 3)) if is_shared else number
        hops = []
        for each in sorted(draw(st.sets(st.integers(1, channels), min_size=1))):
            if (each, stream) not in index:
                index[each, stream] = len(carriages)
                carriages.append(Carriage(RATE, ((each, 1),)))
            hops.append(index[each, stream])
        best = draw(st.integers(1, 4))
        worst = best + draw(st.integers(0, 30))
        present = draw(st.integers(best, worst))
        priority = draw(st.integers(1, 6))
        contracts.append(BandedContract(number, priority, RATE, best, worst, present, tuple(hops)))
    free: dict[Element, Fraction] = {}
    for each in range(1, channels + 1):
        free[each] = Fraction(draw(st.integers(1, 400)))
    return contracts, carriages, free


def used(
    contracts: Sequence[BandedContract], carriages: Sequence[Carriage], everys: Mapping[int, int]
) -> dict[Element, Fraction]:
    """Load of each element, by brute force."""
    found: dict[Element, Fraction] = {}
    for at, carriage in enumerate(carriages):
        taken = [everys[each.number] for each in contracts if at in each.carriages]
        for element, cost in carriage.charges:
            share = union_rate(taken) if taken else Fraction(0)
            found[element] = found.get(element, Fraction(0)) + share * carriage.events_per_s * cost
    return found


def is_within(load: Mapping[Element, Fraction], free: Mapping[Element, Fraction]) -> bool:
    return all(load.get(element, 0) <= left for element, left in free.items())


@settings(max_examples=200, deadline=None)
@given(networks(is_shared=True))
def test_every_split_fits_and_keeps_all_bands(
    network: Network,
) -> None:
    contracts, carriages, free = network
    found = split(contracts, carriages, free)
    at_worst = {each.number: each.worst for each in contracts}
    if found is None:
        return
    assert all(each.best <= found[each.number] <= each.worst for each in contracts)
    assert is_within(used(contracts, carriages, found), free)
    assert found.keys() == at_worst.keys()
    assert split(contracts[::-1], carriages, free) == found


@settings(max_examples=200, deadline=None)
@given(networks(is_shared=False))
def test_a_split_exists_whenever_the_worst_fits_and_is_max_min_fair(
    network: Network,
) -> None:
    contracts, carriages, free = network
    found = split(contracts, carriages, free)
    at_worst = {each.number: each.worst for each in contracts}
    assert (found is not None) == is_within(used(contracts, carriages, at_worst), free)
    assume(found is not None)
    assert found is not None
    for each in contracts:
        if found[each.number] == each.best:
            continue
        below = {one.number: one.worst for one in contracts if one.priority > each.priority}
        raised = found | below | {each.number: found[each.number] - 1}
        load = used(contracts, carriages, raised)
        full = {element for element, left in free.items() if load.get(element, 0) > left}
        assert full, "nothing is lower than it must be for those above it"
        assert any(_is_fair(each, element, contracts, carriages, found) for element in full)


def _is_fair(
    each: BandedContract,
    element: Element,
    contracts: Sequence[BandedContract],
    carriages: Sequence[Carriage],
    found: Mapping[int, int],
) -> bool:
    """Whether nobody of its priority over a full element could give way to `each`."""
    return all(
        found[other.number] >= min(other.worst, found[each.number] - 1)
        for other in contracts
        if other.priority == each.priority
        and any(element in dict(carriages[at].charges) for at in other.carriages)
    )


class Steps:
    """A budget of so many steps."""

    def __init__(self, most: int) -> None:
        self.left = most

    def is_spent(self, steps: int = 1) -> bool:
        self.left -= steps
        return self.left < 0


def test_a_split_ends_with_its_budget_and_not_half_done() -> None:
    some = [alone(number) for number in range(30)]
    carriages = [Carriage(RATE, ((1, 1),)) for _ in some]
    free: dict[Element, Fraction] = {1: Fraction(600)}
    whole = split(some, carriages, free)
    assert whole is not None
    budget = Steps(10_000)
    assert split(some, carriages, free, budget) == whole
    took = 10_000 - budget.left
    assert took > len(some)
    for fewer in (1, took // 2, took - 1):
        assert split(some, carriages, free, Steps(fewer)) is None
