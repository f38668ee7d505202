"""What the receiving end of a channel accepts, with late and lost gifts, and with forged epochs."""

from __future__ import annotations

import pytest

from gridstat.model.key_schedule import OLD_EPOCH_NS
from gridstat.model.keys.key_settings import KEYS_DEFAULT, NumberedKey, Seed
from gridstat.model.keys.receiving_keys import KEYS_MAX, ReceivingKeys, SeenEpochs
from gridstat.model.keys.sending_keys import DATAGRAMS_MAX, SendingKeys
from tests.unit.model.keys.sealed_channel import CHANNEL, NS_PER_S, SealedChannel, StubDatagram

STEP_NS = NS_PER_S // 4


def seed_of(number: int) -> Seed:
    return Seed(CHANNEL, number, bytes([number]) * 32)


def begin(keys: ReceivingKeys, number: int, now_ns: int) -> SendingKeys:
    first = keys.accept(seed_of(number), now_ns, number)
    return SendingKeys(seed_of(number), first, now_ns)


def accepted(keys: ReceivingKeys) -> set[NumberedKey]:
    return set(keys.keys())


def hear(keys: ReceivingKeys, sender: SendingKeys, now_ns: int) -> None:
    assert sender.key() in accepted(keys)
    keys.step(now_ns, SeenEpochs((sender.key().epoch_byte,)))


@pytest.mark.parametrize("late_s", [100, 144, 239, 250, 601, 1_800, 9 * 3_600])
@pytest.mark.parametrize("has_one_in_use", [True, False])
def test_a_seed_that_comes_late_to_the_sender_is_heard_at_once(
    late_s: int, has_one_in_use: bool
) -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.run(10 if has_one_in_use else 0)
    (installed,) = channel.receiver.accept(seed_of(5), channel.now_ns)
    channel.run(late_s, step_s=1, each_s=None if has_one_in_use else 48 * 3_600)
    channel.sender.use(seed_of(5), installed.first_epoch, channel.now_ns)
    channel.run(1_000)
    assert channel.sent >= 4_000
    assert channel.sent == channel.received


@pytest.mark.parametrize("late_s", [144, 601, 1_800])
def test_a_late_sender_that_was_silent_is_heard_soon(late_s: int) -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.start_receiver()
    (installed,) = channel.receiver.accept(seed_of(5), channel.now_ns)
    channel.run(late_s, step_s=1, each_s=48 * 3_600)
    channel.sender.use(seed_of(5), installed.first_epoch, channel.now_ns)
    channel.run(500, step_s=1, each_s=48 * 3_600)
    channel.run(300)
    assert channel.received >= channel.sent - 1


def test_the_oldest_pending_seed_is_kept_when_later_gifts_are_lost() -> None:
    keys = ReceivingKeys()
    sender = begin(keys, 1, 0)
    for number in range(2, 9):
        keys.accept(seed_of(number), number * NS_PER_S, number)
        keys.step(number * NS_PER_S, SeenEpochs())
        assert sender.key() in accepted(keys)
    newest = begin(keys, 9, 9 * NS_PER_S)
    assert newest.key() in accepted(keys)
    hear(keys, sender, 10 * NS_PER_S)
    hear(keys, newest, 11 * NS_PER_S)


@pytest.mark.parametrize("forged", [4, 12])
@pytest.mark.parametrize("each", [1, 10])
def test_forged_epochs_do_not_keep_a_receiver_from_its_sender(forged: int, each: int) -> None:
    """The sender is 20 epochs ahead, and sends in each step, or in every tenth."""
    keys = ReceivingKeys()
    sender = begin(keys, 1, 0)
    hear(keys, sender, NS_PER_S)
    epoch = sender.epoch
    for _ in range(20):
        sender.advance(2 * NS_PER_S)
    now_ns, step = 2 * NS_PER_S, 0
    while not (step % each == 0 and sender.key() in accepted(keys)):
        now_ns, step = now_ns + STEP_NS, step + 1
        held = {key.epoch_byte for key in accepted(keys)}
        near = {(epoch + 2 + ahead) % 256 for ahead in range(forged)}
        sent = {sender.key().epoch_byte} if step % each == 0 else set()
        keys.step(now_ns, SeenEpochs(unknown=(near | sent) - held))
        assert now_ns < 100 * NS_PER_S
    hear(keys, sender, now_ns)
    assert sender.key() in accepted(keys)


def test_a_byte_of_two_chains_is_that_of_the_chain_in_use() -> None:
    """A busy sender, whose next seed never comes, passes the bytes of the pending chain."""
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.run(1)
    channel.receiver.accept(seed_of(5), channel.now_ns)
    for _ in range(400):
        channel.sending_core.datagrams = DATAGRAMS_MAX
        channel.run(0.25)
    assert channel.sent == channel.received


def test_a_new_seed_leaves_the_epochs_before_it_their_time() -> None:
    keys = ReceivingKeys()
    sender = begin(keys, 1, 0)
    hear(keys, sender, NS_PER_S)
    before = [sender.key()]
    before.append(sender.advance(2 * NS_PER_S))
    hear(keys, sender, 2 * NS_PER_S)
    fresh = begin(keys, 2, 2 * NS_PER_S)
    hear(keys, fresh, 3 * NS_PER_S)
    assert set(before) <= accepted(keys)
    assert len(keys.keys()) <= KEYS_MAX
    keys.step(3 * NS_PER_S + OLD_EPOCH_NS, SeenEpochs())
    assert not set(before) & accepted(keys)


@pytest.mark.parametrize(("ahead", "within_s"), [(2, 6), (3, 6), (8, 12), (30, 40)])
@pytest.mark.parametrize("phase_s", [0, 30, 110])
def test_a_flood_of_all_epochs_keeps_no_near_one_waiting(
    ahead: int, within_s: int, phase_s: int
) -> None:
    """The sender was cut off, and ended epochs by its datagrams; a stranger reports all bytes."""
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False

    def run(seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            held = channel.receiving_core.accepted.keys()
            channel.receiving_core.unknown |= set(range(256)) - held
            channel.run(0.25)

    run(60 + phase_s)
    channel.is_cut = True
    for _ in range(ahead):
        channel.sending_core.datagrams = DATAGRAMS_MAX
        run(0.25)
    channel.is_cut = False
    before = channel.received
    run(within_s)
    assert channel.received > before


def cut_ahead(ahead: int) -> tuple[SealedChannel, StubDatagram, StubDatagram]:
    """A sender that is ahead, with a datagram of the old epoch and one of the new one, both held
    up on the way by a stranger who has no key."""
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.run(60)
    channel.is_cut = True
    channel.run(0.25)
    old = channel.newest
    for _ in range(ahead):
        channel.sending_core.datagrams = DATAGRAMS_MAX
        channel.run(0.25)
    assert old is not None
    assert channel.newest is not None
    assert channel.newest[0] == (old[0] + ahead) % 256
    return channel, old, channel.newest


def await_trial(channel: SealedChannel, new: StubDatagram) -> None:
    """Send headers of an epoch until its key is on trial."""
    for _ in range(200):
        if new[0] in channel.receiving_core.accepted:
            return
        channel.receiving_core.unknown.add(new[0])
        channel.run(0.25)
    raise AssertionError("the epoch is never tried")


def replay(channel: SealedChannel, *datagrams: StubDatagram, seconds: float = 90.0) -> None:
    """Send them again and again, seldom enough that the core forgets keys meanwhile."""
    for _ in range(int(seconds)):
        for each in datagrams:
            channel.play(each)
        channel.run(1)


@pytest.mark.parametrize("ahead", [5, 20, 100])
def test_a_late_datagram_of_the_old_epoch_does_not_end_a_trial_that_opened_something(
    ahead: int,
) -> None:
    """Else the next trial of that epoch would begin with empty windows, and believe it again."""
    channel, old, new = cut_ahead(ahead)
    await_trial(channel, new)
    before = channel.received
    channel.play(new)
    channel.play(old)
    assert channel.received == before + 2
    replay(channel, old, new)
    assert channel.received == before + 2
    channel.is_cut = False
    channel.run(10)
    assert channel.received >= before + 2 + 39, "the sender's epoch was followed"


@pytest.mark.parametrize("ahead", [5, 20, 100])
def test_a_datagram_opened_just_before_its_trial_ends_is_followed(ahead: int) -> None:
    """It comes after the step has asked what was opened, and before the keys are changed."""
    channel, old, new = cut_ahead(ahead)
    await_trial(channel, new)
    before, core = channel.received, channel.receiving_core
    for _ in range(60):
        core.before_set = lambda: channel.play(new)
        channel.run(0.25)
    core.before_set = bool
    assert channel.received == before + 1
    assert new[0] in core.accepted
    replay(channel, old, new)
    assert channel.received <= before + 2
    channel.is_cut = False
    channel.run(10)
    assert channel.received >= before + 40, "the sender's epoch was followed"
