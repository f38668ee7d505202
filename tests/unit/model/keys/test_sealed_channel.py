"""Keys of a sealed channel in virtual time: rotations, restarts, cuts, and absent givers."""

from __future__ import annotations

import pytest

from gridstat.model.errors import LayoutError
from gridstat.model.keys.channel_keys import SeedOver, SeedOverdue
from gridstat.model.keys.key_settings import KEYS_DEFAULT, KeySettings, NumberedKey, Seed
from gridstat.model.keys.seed_giver import ANSWER_NS_MAX, End
from gridstat.model.keys.sending_keys import CARRIED_MAX, DATAGRAMS_MAX
from tests.unit.model.keys.sealed_channel import CHANNEL, NS_PER_S, SealedChannel

HOUR_S = 3_600


def lost(channel: SealedChannel) -> int:
    return channel.sent - channel.received


def test_a_thousand_rotations_lose_nothing() -> None:
    channel = SealedChannel(KeySettings(epoch_ms=1_000, reseed_ms=30_000))
    first = channel.sender._sending[CHANNEL].epoch
    channel.is_giver_there = False
    channel.run(1_000)
    assert channel.sender._sending[CHANNEL].epoch == first + 1_000
    assert channel.sent == 4_000
    assert lost(channel) == 0


def test_fresh_seeds_lose_nothing() -> None:
    channel = SealedChannel(KeySettings(epoch_ms=1_000, reseed_ms=3_000))
    channel.run(600)
    assert channel.giver.seeds_given >= 200
    assert lost(channel) == 0


def test_a_day_without_a_giver_loses_nothing_and_then_stops_in_words() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.run(24 * HOUR_S - 10, step_s=5)
    assert lost(channel) == 0
    assert channel.over == [
        SeedOverdue(CHANNEL, is_sender=True),
        SeedOverdue(CHANNEL, is_sender=False),
    ], "each end says it once"
    assert channel.sender.overdue(channel.now_ns) == [CHANNEL]
    channel.run(20)
    assert SeedOver(CHANNEL, is_sender=True) in channel.over
    assert SeedOver(CHANNEL, is_sender=False) in channel.over
    assert channel.unsent > 0
    assert channel.sender.keyless() == [CHANNEL]
    assert channel.receiver.keyless() == [CHANNEL]


def test_an_end_warns_again_only_after_a_fresh_seed() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    for _ in range(2):
        channel.is_giver_there = False
        channel.run(2 * HOUR_S + 60, step_s=5)
        channel.restart_giver()
        channel.run(10)
    warned = [SeedOverdue(CHANNEL, is_sender=True), SeedOverdue(CHANNEL, is_sender=False)]
    assert channel.over == 2 * warned


def test_a_giver_that_returns_ends_the_stop() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.run(24 * HOUR_S + 60, step_s=5)
    channel.restart_giver()
    before = channel.received
    channel.run(10)
    assert channel.received == before + 40


@pytest.mark.parametrize("silent_s", [90, 130, 3_700, 9 * HOUR_S, 23 * HOUR_S])
def test_a_channel_that_was_silent_for_long_loses_nothing(silent_s: int) -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    for at in range(5):
        channel.run(silent_s / 5 + at, step_s=1, each_s=silent_s)
        channel.send()
        assert lost(channel) == 0


@pytest.mark.parametrize("hours", range(1, 25))
@pytest.mark.parametrize("has_giver", [True, False])
def test_a_silent_channel_never_becomes_deaf(hours: int, has_giver: bool) -> None:
    channel = SealedChannel(KEYS_DEFAULT, seed=hours)
    channel.is_giver_there = has_giver
    channel.run(60)
    for _ in range(hours * 60 - 2):
        channel.run(60, step_s=60, each_s=2 * HOUR_S * 24)
        assert channel.is_heard()
    channel.send()
    assert lost(channel) == 0


@pytest.mark.parametrize("cut_s", [5, 130, 700, 9 * HOUR_S])
def test_a_receiver_that_was_cut_off_receives_again_at_once(cut_s: int) -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.run(100)
    channel.is_cut = True
    channel.run(cut_s, step_s=1)
    channel.is_cut = False
    before = channel.sent, channel.received
    channel.run(60)
    assert channel.sent - before[0] == channel.received - before[1]


def test_a_receiver_follows_a_sender_that_ended_many_epochs_by_datagrams() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.run(10)
    channel.is_cut = True
    for _ in range(300):
        channel.sending_core.datagrams = DATAGRAMS_MAX
        channel.run(0.25)
    channel.is_cut = False
    channel.run(10)
    before = channel.sent, channel.received
    channel.run(10)
    assert channel.sent - before[0] == channel.received - before[1]


def test_a_busy_channel_begins_an_epoch_by_its_datagrams() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    epoch = channel.sender._sending[CHANNEL].epoch
    channel.sending_core.datagrams = DATAGRAMS_MAX
    channel.run(1)
    assert channel.sender._sending[CHANNEL].epoch == epoch + 1
    assert lost(channel) == 0


def test_forged_epochs_do_not_disturb_a_channel() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    for _ in range(400):
        channel.receiving_core.unknown = set(range(256)) - channel.receiving_core.accepted.keys()
        channel.run(1)
    assert lost(channel) == 0


def test_a_restarted_sender_gets_a_fresh_seed_and_never_repeats_a_counter() -> None:
    channel = SealedChannel(KeySettings(epoch_ms=10_000, reseed_ms=60_000))
    for _ in range(50):
        channel.run(3)
        channel.start_sender()
    channel.run(3)
    assert lost(channel) == 0


def test_a_restarted_sender_sends_nothing_while_the_giver_is_absent() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.run(3)
    channel.is_giver_there = False
    sent = channel.sent
    channel.start_sender()
    channel.run(3)
    assert channel.sent == sent
    assert channel.unsent > 0
    channel.restart_giver()
    channel.run(3)
    assert channel.sent > sent
    assert lost(channel) == 0


def test_a_restarted_receiver_receives_again_with_a_fresh_seed() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.run(3)
    channel.start_receiver()
    before = channel.sent, channel.received
    channel.run(3)
    assert channel.sent - before[0] == channel.received - before[1] > 0


def test_a_lost_offer_is_repeated_with_another_seed() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.loses_offers = True
    channel.connect(End.SENDER)
    number = channel.giver._exchanges[CHANNEL].seed
    channel.loses_offers = False
    channel.run(ANSWER_NS_MAX / NS_PER_S + 1)
    assert number is not None
    assert channel.sender._sending[CHANNEL].number != number.number
    assert lost(channel) == 0


def test_a_giver_steps_often_enough_to_repeat_an_offer_in_time() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    assert channel.giver.tick_ns <= ANSWER_NS_MAX
    channel.loses_offers = True
    channel.connect(End.SENDER)
    assert channel.giver.step(channel.now_ns + channel.giver.tick_ns)


def test_a_gift_that_is_lost_with_its_session_loses_no_event() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.run(3)
    channel.loses_gifts = True
    for _ in range(5):
        channel.giver.end_down(CHANNEL, End.SENDER)
        channel.connect(End.SENDER)
        channel.run(1)
    channel.loses_gifts = False
    channel.connect(End.SENDER)
    channel.run(3)
    assert lost(channel) == 0


def test_a_channel_opened_again_goes_on_with_the_next_epoch() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    for _ in range(6):
        channel.run(1)
        channel.sender.channel_interrupted(CHANNEL)
        channel.sending_core.counter = 0
        channel.sender.channel_opened(CHANNEL, channel.now_ns)
    channel.run(1)
    assert lost(channel) == 0


def reopen(channel: SealedChannel) -> None:
    """Open the sender's channel again, as a router does for a changed order."""
    channel.sender.channel_interrupted(CHANNEL)
    channel.sending_core.sending = None
    channel.sender.channel_opened(CHANNEL, channel.now_ns, goes_on=True)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_channel_opened_again_and_again_within_one_step_loses_nothing(times: int) -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.run(1)
    for _ in range(times):
        reopen(channel)
        channel.send(10)
    channel.run(1)
    assert lost(channel) == 0


def test_openings_do_not_let_a_key_seal_more_datagrams_than_it_may() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.run(1)
    key = channel.sending_core.sending
    sealed = 0
    for _ in range(100):
        channel.sending_core.datagrams = CARRIED_MAX // 3
        sealed += CARRIED_MAX // 3
        reopen(channel)
        if channel.sending_core.sending != key:
            break
    assert CARRIED_MAX <= sealed < 2 * CARRIED_MAX
    reopen(channel)
    channel.sending_core.datagrams = CARRIED_MAX - 1
    reopen(channel)
    key = channel.sending_core.sending
    channel.sending_core.datagrams = DATAGRAMS_MAX - CARRIED_MAX + 1
    channel.run(0.25)
    assert channel.sending_core.sending != key


def test_a_channel_opened_again_with_its_counter_takes_the_key_of_the_present_time() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.run(1)
    epoch = channel.sender._sending[CHANNEL].epoch
    channel.sender.channel_interrupted(CHANNEL)
    channel.run(400, step_s=1, each_s=HOUR_S)
    channel.sender.channel_opened(CHANNEL, channel.now_ns, goes_on=True)
    assert channel.sender._sending[CHANNEL].epoch == epoch + 3
    channel.run(300)
    assert lost(channel) == 0


def test_a_seed_that_comes_before_its_channel_waits_for_it() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.receiver.source_closed(CHANNEL)
    channel.sender.channel_closed(CHANNEL)
    seed = Seed(CHANNEL, 5, bytes(32))
    assert channel.receiver.accept(seed, channel.now_ns) == []
    (installed,) = channel.receiver.source_opened(CHANNEL, channel.now_ns)
    assert installed.number == 5
    channel.sender.use(seed, installed.first_epoch, channel.now_ns)
    channel.sender.channel_opened(CHANNEL, channel.now_ns)
    channel.send()
    assert lost(channel) == 0


@pytest.mark.parametrize("gap_s", [60, 119, 200, 400, 601, 1_800, 9 * HOUR_S])
def test_a_sender_whose_channel_opens_late_is_heard_at_once(gap_s: int) -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.start_receiver()
    channel.sender.channel_closed(CHANNEL)
    channel.sending_core.sending = None
    seed = Seed(CHANNEL, 5, bytes(32))
    (installed,) = channel.receiver.accept(seed, channel.now_ns)
    channel.sender.use(seed, installed.first_epoch, channel.now_ns)
    channel.run(gap_s, step_s=1)
    channel.sender.channel_opened(CHANNEL, channel.now_ns)
    channel.run(600)
    assert channel.sent == 2_400
    assert lost(channel) == 0


@pytest.mark.parametrize("gap_s", [60, 119, 200, 400, 601, 1_800, 9 * HOUR_S])
def test_a_channel_opened_again_after_a_pause_is_heard_at_once(gap_s: int) -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.run(10)
    channel.sender.channel_interrupted(CHANNEL)
    channel.run(gap_s, step_s=1, each_s=24 * HOUR_S)
    channel.sending_core.counter = 0
    channel.sender.channel_opened(CHANNEL, channel.now_ns)
    channel.run(600)
    assert lost(channel) == 0


def test_a_channel_opened_again_a_day_later_gets_no_old_key() -> None:
    channel = SealedChannel(KEYS_DEFAULT)
    channel.is_giver_there = False
    channel.sender.channel_interrupted(CHANNEL)
    channel.run(24 * HOUR_S, step_s=60, each_s=48 * HOUR_S)
    channel.sending_core.sending = None
    channel.sender.channel_opened(CHANNEL, channel.now_ns)
    assert channel.sending_core.sending is None
    channel.run(1)
    assert SeedOver(CHANNEL, is_sender=True) in channel.over


def test_no_text_shows_a_secret() -> None:
    secret = b"s" * 32
    shown = f"{Seed(CHANNEL, 1, secret)!r} {NumberedKey(1, secret[:16], secret[:4])!r}"
    assert "ssss" not in shown


@pytest.mark.parametrize(
    "times", [{"epoch_ms": 120_001}, {"reseed_ms": 3_600_001}, {"life_ms": 86_400_001}]
)
def test_times_longer_than_the_bounds_are_refused(times: dict[str, int]) -> None:
    with pytest.raises(LayoutError, match=next(iter(times))):
        KeySettings(**times)
