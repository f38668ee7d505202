"""The law of probes: one part in a hundred, four intervals, never faster than 25 ms."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.capacity.charges import DATAGRAM_HEADER_BYTES, IP_AND_UDP_BYTES
from gridstat.core.rows import PROBE_INTERVAL_NS_MAX, PROBE_INTERVAL_NS_MIN
from gridstat.model.probe_law import (
    INTERVAL_MS_MAX,
    PROBE_BYTES,
    ProbeSettings,
    probe_bytes,
    probe_bytes_per_s,
    probe_interval_ms,
    silence_limit_ms,
)
from gridstat.model.wire_law import wire_bytes

SEAL_BYTES = 16
BANDWIDTHS = st.integers(min_value=1, max_value=2**40)


@pytest.mark.parametrize(
    ("bandwidth_bytes_per_s", "interval_ms"),
    [
        pytest.param(0, 25, id="undeclared"),
        pytest.param(8_000, 750, id="64 kbit/s"),
        pytest.param(125_000, 48, id="1 Mbit/s"),
        pytest.param(239_999, 26, id="rounded up to a whole millisecond"),
        pytest.param(240_000, 25, id="the slowest that affords 25 ms"),
        pytest.param(10**12, 25, id="a large one"),
        pytest.param(100, 60_000, id="the slowest that keeps to 1 %"),
        pytest.param(1, 60_000, id="the slowest of all"),
    ],
)
def test_the_interval_is_what_one_percent_of_the_bandwidth_affords(
    bandwidth_bytes_per_s: int, interval_ms: int
) -> None:
    assert probe_interval_ms(bandwidth_bytes_per_s) == interval_ms


@pytest.mark.parametrize(
    ("bandwidth_bytes_per_s", "interval_ms"),
    [(0, 25), (8_000, 1_000), (125_000, 64), (319_999, 26), (320_000, 25), (100, 60_000)],
)
def test_a_larger_probe_by_ipv6_has_a_longer_interval(
    bandwidth_bytes_per_s: int, interval_ms: int
) -> None:
    assert probe_interval_ms(bandwidth_bytes_per_s, is_ipv6=True) == interval_ms


@pytest.mark.parametrize("is_ipv6", [False, True])
def test_a_sealed_probe_is_two_headers_and_a_seal(*, is_ipv6: bool) -> None:
    datagram_bytes = DATAGRAM_HEADER_BYTES + SEAL_BYTES
    assert probe_bytes(is_ipv6=is_ipv6) == wire_bytes(datagram_bytes, 1_232, is_ipv6=is_ipv6)
    assert IP_AND_UDP_BYTES + datagram_bytes == PROBE_BYTES


def test_a_channel_of_64_kbit_per_s_pays_exactly_one_percent() -> None:
    settings = ProbeSettings()
    assert settings.bytes_per_s_of(8_000) == 80
    assert settings.silent_ms_max_of(8_000) == 3_000


@given(BANDWIDTHS, st.integers(min_value=1, max_value=1_000), st.booleans())
def test_probes_take_at_most_one_percent_and_no_shorter_interval_would(
    bandwidth: int,
    interval_ms_min: int,
    is_ipv6: bool,
) -> None:
    interval_ms = probe_interval_ms(bandwidth, interval_ms_min, is_ipv6=is_ipv6)
    assert interval_ms_min <= interval_ms <= INTERVAL_MS_MAX
    if bandwidth >= (134 if is_ipv6 else 100):
        assert probe_bytes_per_s(interval_ms, is_ipv6=is_ipv6) <= Fraction(bandwidth, 100)
    if interval_ms > interval_ms_min:
        assert probe_bytes_per_s(interval_ms - 1, is_ipv6=is_ipv6) > Fraction(bandwidth, 100)


@given(BANDWIDTHS, BANDWIDTHS)
def test_a_wider_channel_is_never_probed_more_rarely(some: int, more: int) -> None:
    narrow, wide = sorted((some, more))
    assert probe_interval_ms(narrow) >= probe_interval_ms(wide)


@given(BANDWIDTHS, st.integers(min_value=1, max_value=60_000), st.integers(0, 600_000))
def test_a_silence_of_four_intervals_is_always_allowed(
    bandwidth: int, interval_ms: int, silent_ms_max: int
) -> None:
    settings = ProbeSettings(interval_ms, silent_ms_max)
    limit_ms = settings.silent_ms_max_of(bandwidth)
    assert limit_ms >= silence_limit_ms(settings.interval_ms_of(bandwidth))
    assert limit_ms >= silent_ms_max


def test_a_cloud_that_probes_faster_does_not_do_so_between_clouds() -> None:
    assert ProbeSettings(10, 50).between_clouds().interval_ms_of(0) == 25
    assert ProbeSettings(125, 500).between_clouds() == ProbeSettings(125, 500)


def test_a_router_takes_every_interval_of_the_law() -> None:
    assert PROBE_INTERVAL_NS_MIN <= 1_000_000
    assert INTERVAL_MS_MAX * 1_000_000 == PROBE_INTERVAL_NS_MAX
