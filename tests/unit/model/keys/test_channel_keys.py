"""Keys of several channels in one core: what becomes of the others when one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridstat.model.errors import Misuse
from gridstat.model.keys.channel_keys import ChannelKeys, KeysFailed
from gridstat.model.keys.key_settings import KEYS_DEFAULT, NS_PER_MS, Seed

if TYPE_CHECKING:
    from collections.abc import Sequence

BROKEN, SOUND = 1, 2
EPOCH_NS = KEYS_DEFAULT.epoch_ms * NS_PER_MS


class BreakableCore:
    """Keys by channel; a broken channel refuses every call."""

    def __init__(self) -> None:
        self.broken: set[int] = set()
        self.failure: Exception = Misuse("the sender is closed", hint="open a new one")
        self.sending: dict[int, list[int]] = {BROKEN: [], SOUND: []}
        self.accepted: dict[int, list[set[int]]] = {BROKEN: [], SOUND: []}

    def _need(self, channel_id: int) -> None:
        if channel_id in self.broken:
            raise self.failure

    def set_sending_key(self, channel_id: int, epoch: int, key: bytes, salt: bytes) -> None:
        del key, salt
        self._need(channel_id)
        self.sending[channel_id].append(epoch)

    def clear_sending_key(self, channel_id: int) -> None:
        self._need(channel_id)
        self.sending[channel_id].clear()

    def sending_state(self, channel_id: int) -> dict[str, Any]:
        self._need(channel_id)
        return {"datagrams": 0}

    def set_receiving_keys(self, channel_id: int, keys: Sequence[tuple[int, bytes, bytes]]) -> None:
        self._need(channel_id)
        self.accepted[channel_id].append({epoch for epoch, _, _ in keys})

    def receiving_state(self, channel_id: int) -> dict[str, Any]:
        self._need(channel_id)
        return {"epochs": (), "dropped_epochs": (), "unknown_epochs": ()}


def both() -> tuple[BreakableCore, ChannelKeys]:
    core = BreakableCore()
    keys = ChannelKeys(core, bytes)
    for channel_id in (BROKEN, SOUND):
        keys.channel_opened(channel_id, 0)
        keys.source_opened(channel_id, 0)
        seed = Seed(channel_id, 1, bytes(32))
        keys.use(seed, 5, 0)
        keys.accept(seed, 0)
    return core, keys


def test_a_channel_that_fails_holds_up_no_other() -> None:
    core, keys = both()
    core.broken.add(BROKEN)
    for epoch in range(1, 4):
        keys.step(epoch * EPOCH_NS)
    assert core.sending[SOUND] == [5, 6, 7, 8]
    assert len(core.accepted[SOUND]) > 1


def test_a_failure_is_told_once_until_it_is_over() -> None:
    core, keys = both()
    core.broken.add(BROKEN)
    failures = [
        KeysFailed(BROKEN, is_sender=end, reason="the sender is closed") for end in (True, False)
    ]
    assert keys.step(1) == failures
    assert keys.step(2) == []
    core.broken.clear()
    assert keys.step(3) == []
    core.broken.add(BROKEN)
    assert keys.step(4) == failures


def test_a_channel_without_memory_for_its_keys_holds_up_no_other_and_says_so() -> None:
    core, keys = both()
    core.broken.add(BROKEN)
    core.failure = MemoryError()
    news = keys.step(EPOCH_NS)
    assert [each.reason for each in news if isinstance(each, KeysFailed)] == 2 * [
        "there is no memory for its keys"
    ]
    assert core.sending[SOUND] == [5, 6]


def test_a_core_that_works_again_gets_the_keys_that_it_missed() -> None:
    core, keys = both()
    accepted = core.accepted[BROKEN]
    core.broken.add(BROKEN)
    keys.step(3 * EPOCH_NS)
    core.broken.clear()
    keys.step(3 * EPOCH_NS + 1)
    keys.step(3 * EPOCH_NS + 2)
    assert core.sending[BROKEN] == [5, 8]
    assert accepted[-1] == core.accepted[SOUND][-1]


def test_no_key_that_a_core_may_have_is_set_again() -> None:
    core, keys = both()
    core.broken.add(BROKEN)
    keys.step(1)
    core.broken.clear()
    keys.step(2)
    assert core.sending[BROKEN] == [5, 6]
