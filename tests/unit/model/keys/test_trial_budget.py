"""What forged epochs on many channels cost the thread that derives keys, and whom they hold up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.model.key_schedule import next_seed
from gridstat.model.keys.channel_keys import ChannelKeys
from gridstat.model.keys.key_settings import STEPS_MAX, Seed
from gridstat.model.keys.sending_keys import SendingKeys
from gridstat.model.keys.trial_budget import (
    FAR_DERIVATIONS_MAX,
    NEAR_DERIVATIONS_MAX,
    TrialBudget,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NS_PER_S = 1_000_000_000
STEP_NS = NS_PER_S // 4
FLOODED = range(1, 401)
OURS = 1_000


class FloodedCore:
    """Sources that a stranger sends datagrams of all epochs, and one of ours, which he does not."""

    def __init__(self) -> None:
        self.accepted: dict[int, set[tuple[int, bytes, bytes]]] = {}
        self.forged: set[int] = set(range(256))
        self.ours: set[int] = set()

    def set_receiving_keys(self, channel_id: int, keys: Sequence[tuple[int, bytes, bytes]]) -> None:
        self.accepted[channel_id] = {tuple(each) for each in keys}  # type: ignore[misc]

    def receiving_state(self, channel_id: int) -> dict[str, Any]:
        sent = self.ours if channel_id == OURS else self.forged
        held = {epoch for epoch, _, _ in self.accepted[channel_id]}
        return {"epochs": (), "dropped_epochs": (), "unknown_epochs": tuple(sorted(sent - held))}

    def set_sending_key(self, channel_id: int, epoch: int, key: bytes, salt: bytes) -> None:
        raise NotImplementedError

    def clear_sending_key(self, channel_id: int) -> None:
        raise NotImplementedError

    def sending_state(self, channel_id: int) -> dict[str, Any]:
        raise NotImplementedError


def flooded() -> tuple[FloodedCore, ChannelKeys, SendingKeys]:
    """The core, its keys, and the sender of our own channel."""
    core = FloodedCore()
    keys = ChannelKeys(core, bytes)
    for channel_id in (*FLOODED, OURS):
        keys.source_opened(channel_id, 0)
        (installed,) = keys.accept(Seed(channel_id, 1, bytes(32)), 0)
    return core, keys, SendingKeys(Seed(OURS, 1, bytes(32)), installed.first_epoch, 0)


def test_forged_epochs_on_many_channels_cost_a_bounded_number_of_derivations_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    derived = 0

    def counted(seed: bytes) -> bytes:
        nonlocal derived
        derived += 1
        return next_seed(seed)

    _, keys, _ = flooded()
    monkeypatch.setattr("gridstat.model.keys.receiving_keys.next_seed", counted)
    each_step = []
    for step in range(1, 41):
        derived = 0
        keys.step(step * STEP_NS)
        each_step.append(derived)
    assert max(each_step) <= NEAR_DERIVATIONS_MAX + FAR_DERIVATIONS_MAX
    assert sum(each_step) > 0, "epochs are tried all the same"
    assert keys.trials_dropped > 0


def test_a_sender_ahead_is_heard_beside_a_flood_on_all_other_channels() -> None:
    core, keys, sender = flooded()
    for step in range(1, 41):
        keys.step(step * STEP_NS)
    for _ in range(6):
        key = sender.advance(10 * NS_PER_S)
    core.ours = {key.epoch_byte}
    for step in range(41, 61):
        keys.step(step * STEP_NS)
        if tuple(key) in core.accepted[OURS]:
            return
    pytest.fail("the sender's epoch is not tried within five seconds")


def test_every_flooded_channel_has_its_turn() -> None:
    core, keys, _ = flooded()
    first = {channel_id: set(accepted) for channel_id, accepted in core.accepted.items()}
    tried = set()
    for step in range(1, 61):
        keys.step(step * STEP_NS)
        tried |= {each for each in FLOODED if core.accepted[each] - first[each]}
    assert tried == set(FLOODED)


def test_one_channel_under_all_epochs_drops_no_turn() -> None:
    core, keys, _ = flooded()
    core.forged, core.ours = set(), set(range(256))
    for step in range(1, 101):
        keys.step(step * STEP_NS)
    assert keys.trials_dropped == 0


def test_the_first_epoch_of_a_trial_is_never_out_of_reach() -> None:
    budget = TrialBudget(near=1, far=1)
    assert budget.left(is_far=True) > 0
    budget.spend(STEPS_MAX, is_far=True)
    assert budget.left(is_far=True) < 0
    assert budget.left(is_far=False) == 1
