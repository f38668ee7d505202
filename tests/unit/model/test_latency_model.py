"""The latency law: what it predicts, and how it is fitted."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.latency_model import (
    LATENCY_MODEL_DEFAULT,
    Hop,
    LatencyModel,
    Measurement,
    fit,
    raised,
    serialisation_us,
)

PLAIN = LatencyModel(
    ends_us=50.0, hop_us=40.0, us_per_1000_events_per_s=2.0, us_per_burst_event=1.5
)
loads = st.floats(0, 1e6)
hops = st.builds(Hop, loads, st.integers(0, 1_000), st.integers(0, 10**6), st.just(10**6))


def measured(model: LatencyModel, seed: int, noise: float = 0.0) -> list[Measurement]:
    """Paths of one to six hops under all kinds of load, as the model has it, give or take."""
    random = Random(seed)
    found = []
    for _ in range(200):
        path = tuple(
            Hop(
                events_per_s=random.uniform(0, 200_000),
                burst_events=random.randint(0, 100),
                burst_bytes=random.randint(0, 7_000),
                bandwidth_bytes_per_s=random.choice([0, 1_000_000]),
                channel_latency_us=random.randint(0, 500),
            )
            for _ in range(random.randint(1, 6))
        )
        exact = model.ends_us + sum(
            model.hop_us
            + model.us_per_1000_events_per_s * hop.events_per_s / 1_000
            + model.us_per_burst_event * hop.burst_events
            + serialisation_us(hop.burst_bytes, hop.bandwidth_bytes_per_s)
            + hop.channel_latency_us
            for hop in path
        )
        found.append(Measurement(path, exact * (1 + random.uniform(-noise, noise))))
    return found


def test_a_path_takes_its_ends_its_hops_their_load_and_its_channels() -> None:
    loaded = Hop(events_per_s=10_000, channel_latency_us=300)
    bursty = Hop(burst_events=10, burst_bytes=680, bandwidth_bytes_per_s=68_000)
    assert PLAIN.predict([]) == 50
    assert PLAIN.predict([loaded]) == 50 + 40 + 20 + 300
    assert PLAIN.predict([loaded, bursty]) == 50 + 40 + 20 + 300 + 40 + 15 + 10_000


def test_a_channel_without_a_declared_bandwidth_serialises_nothing() -> None:
    assert serialisation_us(10**9, 0) == 0


@given(st.lists(hops, max_size=5), hops)
def test_a_longer_path_is_never_predicted_to_be_faster(path: list[Hop], more: Hop) -> None:
    assert LATENCY_MODEL_DEFAULT.predict([*path, more]) > LATENCY_MODEL_DEFAULT.predict(path)


@given(loads, loads)
def test_more_load_is_never_predicted_to_be_faster(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert LATENCY_MODEL_DEFAULT.router_us(low) <= LATENCY_MODEL_DEFAULT.router_us(high)


@pytest.mark.feature("S0-135")
def test_a_fit_finds_the_coefficients_that_made_the_measurements() -> None:
    model, error_us = fit(measured(PLAIN, seed=1))
    assert model.ends_us == pytest.approx(PLAIN.ends_us, rel=1e-3)
    assert model.hop_us == pytest.approx(PLAIN.hop_us, rel=1e-3)
    assert model.us_per_1000_events_per_s == pytest.approx(2.0, rel=1e-3)
    assert model.us_per_burst_event == pytest.approx(1.5, rel=1e-3)
    assert error_us < 0.01


@pytest.mark.feature("S0-135")
def test_a_fit_reports_its_mean_absolute_error() -> None:
    measurements = measured(PLAIN, seed=2, noise=0.04)
    model, error_us = fit(measurements)
    # The mean of |x| for x even between -4 and 4 is 2.
    mean_us = sum(one.latency_us for one in measurements) / len(measurements)
    assert 0.015 * mean_us < error_us < 0.025 * mean_us
    usual = [Hop(events_per_s=100_000, burst_events=50)] * 3
    assert model.predict(usual) == pytest.approx(PLAIN.predict(usual), rel=0.03)


def test_a_coefficient_of_which_nothing_was_measured_keeps_its_value() -> None:
    idle = [Measurement((Hop(),) * count, 100.0 + 30.0 * count) for count in range(1, 8)]
    model, error_us = fit(idle, PLAIN)
    assert model.ends_us == pytest.approx(100, rel=1e-3)
    assert model.hop_us == pytest.approx(30, rel=1e-3)
    assert model.us_per_1000_events_per_s == PLAIN.us_per_1000_events_per_s
    assert model.us_per_burst_event == PLAIN.us_per_burst_event
    assert error_us < 0.01


def test_no_coefficient_comes_out_negative() -> None:
    falling = [
        Measurement((Hop(events_per_s=1_000.0 * step),), 500.0 - 10.0 * step) for step in range(9)
    ]
    model, error_us = fit(falling)
    assert model.us_per_1000_events_per_s == 0
    # Between the mean and the least: what is small weighs more.
    assert 450 < model.ends_us + model.hop_us < 460
    assert error_us > 1


@pytest.mark.feature("S0-135")
def test_a_stall_of_the_machine_weighs_no_more_than_any_other_measurement() -> None:
    idle = [Measurement((Hop(),) * count, 100.0 + 30.0 * count) for count in range(1, 8)] * 5
    model, _ = fit([*idle, Measurement((Hop(),), 50_000.0)], PLAIN)
    assert model.predict([Hop()]) == pytest.approx(130, rel=0.15)


@pytest.mark.parametrize("share", [0.5, 0.95, 1.0])
def test_a_raised_law_keeps_the_wanted_share_of_measurements(share: float) -> None:
    measurements = measured(PLAIN, seed=3, noise=0.1)
    model = raised(fit(measurements)[0], measurements, share)
    kept = [one.latency_us <= model.predict(one.hops) for one in measurements]
    assert share <= sum(kept) / len(kept) <= share + 0.1


def test_a_law_that_keeps_enough_is_not_lowered() -> None:
    measurements = measured(PLAIN, seed=4)
    high = LatencyModel(500.0, 400.0, 20.0, 15.0)
    assert raised(high, measurements, 0.95) == high
