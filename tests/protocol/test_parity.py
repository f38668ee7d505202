"""The compiled core against the reference: same commands in, same bytes and counters out."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gridstat.core._core import seal_backends
from tests.protocol import parity
from tests.protocol.grids import assert_reconciled

if TYPE_CHECKING:
    from gridstat.core.rows import Row
    from gridstat.model.rate_law import Period

randoms = st.integers(0, 2**64 - 1).map(random.Random)


class Driver:
    """Driver that sends random commands to a pair, and keeps datagrams to repeat them late."""

    def __init__(self, rng: random.Random, *, seal_backend: str = "best") -> None:
        self.pair = parity.Pair(parity.limits(rng), seal_backend=seal_backend)
        self.periods: dict[int, Period | None] = {}
        self.past: list[bytes] = []
        self.open_source(rng)
        self.open_source(rng)
        for _ in range(3):
            self.open_channel(rng)
            self.commit(rng)

    def open_channel(self, rng: random.Random) -> None:
        self.pair.open_channel(parity.channel(rng))

    def close_channel(self, rng: random.Random) -> None:
        self.pair.close_channel(rng.choice(parity.CHANNELS))

    def reopen_channel(self, rng: random.Random) -> None:
        spec = parity.channel(rng)
        self.pair.reopen_channel(self.pair.open.get(spec.channel_id, spec))

    def open_source(self, rng: random.Random) -> None:
        for channel_id in rng.sample(parity.SOURCES, rng.choice((3, 4))):
            self.pair.open_source(
                channel_id,
                is_publisher=rng.random() < 0.4,
                back_channel=rng.choice((0, *parity.CHANNELS)),
                is_sealed=rng.random() < 0.5,
            )
            self.accept_keys(rng)

    def close_source(self, rng: random.Random) -> None:
        self.pair.close_source(rng.choice(parity.SOURCES))

    def accept_keys(self, rng: random.Random) -> None:
        channel_id, keys = rng.choice(parity.SOURCES), parity.keys(rng)
        self.pair.tell(lambda core: core.set_receiving_keys(channel_id, keys))

    def set_key(self, rng: random.Random) -> None:
        channel_id, (epoch, key, salt) = rng.choice(parity.CHANNELS), parity.key(rng)
        if rng.random() < 0.2:
            self.pair.tell(lambda core: core.clear_sending_key(channel_id))
        else:
            self.pair.tell(lambda core: core.set_sending_key(channel_id, epoch, key, salt))

    def release_channel(self, rng: random.Random) -> None:
        channel_id, is_probed = rng.choice(parity.CHANNELS), rng.random() < 0.5
        if rng.random() < 0.3:
            self.pair.tell(lambda core: core.hold_channel(channel_id, is_probed=is_probed))
        else:
            self.pair.tell(lambda core: core.release_channel(channel_id))

    def commit(self, rng: random.Random) -> None:
        channels = list(self.pair.open)
        if rng.random() < 0.02:
            channels.append(99)
        rows: list[Row] = [
            parity.row(rng, channels, self.pair.now_ns) for _ in range(rng.randrange(1, 8))
        ]
        if rng.random() < 0.95:  # Otherwise a variable may stand in the delta twice: refused.
            rows = list({row.variable_id: row for row in rows}.values())
        removals = [rng.choice(parity.VARIABLES)] if rng.random() < 0.2 else []
        if self.pair.tell(lambda core: core.commit(rows, removals)):
            self.periods.update((row.variable_id, row.period) for row in rows)

    def set_modes(self, rng: random.Random) -> None:
        mask = parity.modes(rng)
        self.pair.tell(lambda core: core.set_modes(mask))
        self.pair.tell(lambda core: core.modes)

    def inject(self, rng: random.Random) -> None:
        octets = parity.burst(rng, self.periods, self.pair.now_ns)
        port = int(rng.random() < 0.1)
        source = int.from_bytes(octets[4:8], "big")
        if rng.random() < (0.9 if source in self.pair.sealed_sources else 0.1):
            octets = parity.sealed(rng, octets, port)
        if self.past and rng.random() < 0.2:
            octets = rng.choice(self.past)
        self.past = [*self.past[-20:], octets]
        self.pair.inject(parity.accident(rng, octets), port=port)

    def wait(self, rng: random.Random) -> None:
        if rng.random() < 0.1:
            self.pair.now_ns -= rng.choice(parity.BACK_STEPS_NS)
        else:
            self.pair.now_ns += rng.choice(parity.TIME_STEPS_NS)
        if rng.random() < 0.5:
            self.pair.tell(lambda core: core.pump(self.pair.now_ns))


class CoresAlike(RuleBasedStateMachine):
    """Any order of commands; Hypothesis looks for the shortest with different results."""

    driver: Driver

    @initialize(rng=randoms)
    def begin(self, rng: random.Random) -> None:
        self.driver = Driver(rng)

    @rule(rng=randoms, times=st.integers(1, 4))
    def inject(self, rng: random.Random, times: int) -> None:
        for _ in range(times):
            self.driver.inject(rng)

    @rule(rng=randoms)
    def wait(self, rng: random.Random) -> None:
        self.driver.wait(rng)

    @rule(rng=randoms)
    def commit(self, rng: random.Random) -> None:
        self.driver.commit(rng)

    @rule(rng=randoms)
    def set_modes(self, rng: random.Random) -> None:
        self.driver.set_modes(rng)

    @rule(rng=randoms)
    def open_channel(self, rng: random.Random) -> None:
        self.driver.open_channel(rng)

    @rule(rng=randoms)
    def close_channel(self, rng: random.Random) -> None:
        self.driver.close_channel(rng)

    @rule(rng=randoms)
    def reopen_channel(self, rng: random.Random) -> None:
        self.driver.reopen_channel(rng)

    @rule(rng=randoms)
    def change_keys(self, rng: random.Random) -> None:
        self.driver.accept_keys(rng)
        self.driver.set_key(rng)

    @rule(rng=randoms)
    def release_channel(self, rng: random.Random) -> None:
        self.driver.release_channel(rng)

    @rule(rng=randoms)
    def change_sources(self, rng: random.Random) -> None:
        self.driver.close_source(rng)
        self.driver.open_source(rng)


TestCoresAlike = CoresAlike.TestCase
TestCoresAlike.settings = settings(stateful_step_count=20)


@pytest.mark.feature("S1-29", "S3-102")
@pytest.mark.parametrize("seal_backend", seal_backends())
@pytest.mark.parametrize("seed", range(12))
def test_a_long_random_script_leaves_both_cores_with_the_same_outputs_and_counters(
    seed: int, seal_backend: str
) -> None:
    rng = random.Random(seed)
    driver = Driver(rng, seal_backend=seal_backend)
    say = (driver.inject, driver.wait, driver.commit, driver.set_modes, driver.open_channel)
    rare = (
        driver.close_channel,
        driver.reopen_channel,
        driver.open_source,
        driver.close_source,
        driver.accept_keys,
        driver.set_key,
        driver.release_channel,
    )
    for _ in range(300):
        words = rng.choices((*say, *rare), weights=(60, 20, 6, 6, 6, 4, 4, 1, 1, 8, 8, 2))[0]
        words(rng)
    for subject in driver.pair.subjects:
        assert_reconciled(subject, driver.pair.open)
