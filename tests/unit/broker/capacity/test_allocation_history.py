"""Any history of subscriptions: what is reserved is what a recount of the contracts comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs

from gridstat.broker.capacity.allocation import Allocation, Refusal
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.planning import claims_of
from gridstat.model.qos import ModalQos, QosRequest
from tests.unit.broker.clouds import LADDER, Recount, ask, cloud, numbers, variable

if TYPE_CHECKING:
    from hypothesis.stateful import MultipleResults

    from gridstat.broker.capacity.resources import Claim

MODE_SETS = (frozenset({1, 2}), frozenset({3}))
BANDWIDTH = 9_000
EVENTS_PER_S_MAX = 420

everys = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 10, 12])
requests = st.builds(
    lambda every, segment, redundancy, worst, latency_us: QosRequest(
        every=every,
        every_worst=every * segment,
        redundancy=redundancy,
        redundancy_worst=min(worst, redundancy),
        latency_us=latency_us,
    ),
    everys,
    st.sampled_from([1, 1, 2, 4]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from([30_000, 200_000, 2_000_000]),
)
qualities = st.dictionaries(st.integers(0, 3), requests, min_size=1, max_size=3)
ends = st.sampled_from(
    [("e0 e1", "e2 e3"), ("e2 e3", "e0 e1"), ("e0", "e3"), ("e1", "e1"), ("e3", "e0 e1")]
)


class AnyHistory(RuleBasedStateMachine):
    """Subscribe, change, fail, replace and unsubscribe in any order, in a cramped cloud."""

    subscriptions: Bundle[int] = Bundle("subscriptions")

    @initialize()
    def start(self) -> None:
        self.resources = cloud(
            LADDER,
            bandwidth=BANDWIDTH,
            events_per_s_max=EVENTS_PER_S_MAX,
            queue_events_max=5,
            mode_sets=MODE_SETS,
        )
        self.empty = numbers(self.resources)
        self.allocator = Allocator(self.resources)
        self.leaving: dict[int, list[Claim]] = {}
        self.number = 0

    @rule(
        target=subscriptions, taken=st.integers(1, 7), hertz=st.just(30), ends=ends, qos=qualities
    )
    def subscribe(
        self, taken: int, hertz: int, ends: tuple[str, str], qos: dict[int, QosRequest]
    ) -> int | MultipleResults[int]:
        self.number += 1
        request = ask(self.number, variable(taken, hertz), ends, qos, subscriber=f"s{taken % 3}")
        before = numbers(self.resources)
        answer = self.allocator.allocate(request)
        if isinstance(answer, Refusal):
            assert numbers(self.resources) == before
            assert answer.code > 1_000
            assert answer.reason
            return multiple()
        return self.number

    @rule(number=subscriptions, qos=qualities)
    def change(self, number: int, qos: dict[int, QosRequest]) -> None:
        old = self.allocator.contract(number)
        before = numbers(self.resources)
        answer = self.allocator.change(structs.replace(old.request, qos=ModalQos(qos)))
        if isinstance(answer, Refusal):
            assert numbers(self.resources) == before
            assert self.allocator.contract(number) == old
        else:
            self._leaves(number, claims_of(old.request, old.granted, old.paths))

    @rule(number=subscriptions, index=st.integers(0, 1), is_first_avoided=st.booleans())
    def replace_path(self, number: int, index: int, is_first_avoided: bool) -> None:
        old = self.allocator.contract(number)
        if index >= len(old.paths):
            return
        before = numbers(self.resources)
        avoided = old.paths[index].channel_ids[:1] if is_first_avoided else ()
        answer = self.allocator.replace_path(number, index, avoiding_channels=avoided)
        if isinstance(answer, Refusal):
            assert numbers(self.resources) == before
            return
        claims = claims_of(old.request, old.granted, old.paths)
        gone = [
            claim for claim, path in zip(claims, old.paths, strict=True) if path not in answer.paths
        ]
        self._leaves(number, gone)
        assert not {number for path in answer.paths for number in path.channel_ids} & set(avoided)

    @rule(number=subscriptions)
    def settle(self, number: int) -> None:
        self.allocator.release_retired(number)
        self.leaving.pop(number, None)

    @rule(number=consumes(subscriptions))
    def unsubscribe(self, number: int) -> None:
        self.allocator.release(number)
        self.leaving.pop(number, None)

    @rule(channel_id=st.integers(1, 16), is_up=st.booleans(), is_pressed=st.booleans())
    def trouble(self, channel_id: int, is_up: bool, is_pressed: bool) -> None:
        self.resources.mark_channel(channel_id, is_up=is_up)
        self.resources.mark_back_pressure(channel_id, is_on=is_pressed)

    @invariant()
    def reserved_is_what_a_recount_comes_to(self) -> None:
        recount = Recount([*self._held(), *self._left()], MODE_SETS)
        for number, carriage in self.resources.channels.items():
            assert carriage.bytes.value == recount.bytes_per_s(number)
        for name, account in self.resources.routers.items():
            assert account.events.value == recount.events_per_s(name)

    @invariant()
    def contracts_alone_are_never_above_capacity(self) -> None:
        recount = Recount(self._held(), MODE_SETS)
        for number in self.resources.channels:
            assert recount.bytes_per_s(number) <= BANDWIDTH
        for name in self.resources.routers:
            assert recount.events_per_s(name) <= EVENTS_PER_S_MAX

    @invariant()
    def paths_are_disjoint_and_in_time(self) -> None:
        for contract in self.allocator.contracts.values():
            channels = [number for path in contract.paths for number in path.channel_ids]
            assert len(set(channels)) == len(channels)
            for index, path in enumerate(contract.paths):
                assert path.latency_us <= contract.latency_us_max(index)
        if not self.leaving:
            assert self.resources.promises.late() == []

    def teardown(self) -> None:
        if hasattr(self, "allocator"):
            for number in list(self.allocator.contracts):
                self.allocator.release(number)
            assert numbers(self.resources) == self.empty

    def _leaves(self, number: int, claims: list[Claim] | tuple[Claim, ...]) -> None:
        self.leaving.setdefault(number, []).extend(claims)

    def _held(self) -> list[Claim]:
        return [
            claim
            for contract in self.allocator.contracts.values()
            for claim in claims_of(contract.request, contract.granted, contract.paths)
        ]

    def _left(self) -> list[Claim]:
        return [claim for claims in self.leaving.values() for claim in claims]


SETTINGS = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # To shrink a history takes longer than a test may.
)


@pytest.mark.feature("S0-4", "S0-59")
def test_any_history_reserves_exactly_what_its_contracts_come_to() -> None:
    run_state_machine_as_test(AnyHistory, settings=SETTINGS)


def test_the_recount_is_not_blind() -> None:
    allocator = Allocator(cloud(LADDER))
    contract = allocator.allocate(ask(1, variable(), ("e0", "e2")))
    assert isinstance(contract, Allocation)
    claims = claims_of(contract.request, contract.granted, contract.paths)
    number = contract.paths[0].channel_ids[0]
    assert Recount(claims, MODE_SETS).bytes_per_s(number) == 30 * 68
    assert Recount((), MODE_SETS).bytes_per_s(number) == 0
    assert Recount(claims, MODE_SETS).events_per_s("e0") == 60
