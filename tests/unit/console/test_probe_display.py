"""Display of a channel's probes in `gridstat explain` and `gridstat tree`."""

from __future__ import annotations

from typing import Any

from gridstat.console.cli.explain import channel_text
from gridstat.console.live.tree_view import channel_line

CHANNEL: dict[str, Any] = {
    "label": "c1/e0→c1/i0",
    "is_up": True,
    "is_back_pressured": False,
    "bytes_per_s": 2_040,
    "bandwidth_bytes_per_s": 8_000,
}
PROBES: dict[str, Any] = {
    "probe_bytes_per_s": 80,
    "probe_interval_ms": 750,
    "silent_ms_max": 3_000,
}
BETWEEN: dict[str, Any] = {
    "channel": "c1/b0→c2/b0",
    "level": 0,
    "is_open": True,
    "is_up": True,
    "is_pressed": False,
    "contracts": 1,
    "promised_bytes_per_s": 2_040.0,
    "bandwidth_bytes_per_s": 8_000,
}


def test_a_channel_is_explained_with_what_its_probes_take_and_its_silence_limit() -> None:
    assert channel_text(CHANNEL | PROBES) == (
        "c1/e0→c1/i0: 2,040 bytes/s promised of 8,000, probes take 80, "
        "dead after 3,000 ms of silence"
    )


def test_a_broker_of_the_release_before_tells_nothing_of_probes() -> None:
    assert channel_text(CHANNEL) == "c1/e0→c1/i0: 2,040 bytes/s promised of 8,000"
    assert channel_line(BETWEEN).endswith("2,040 bytes/s promised of 8,000")


def test_a_channel_between_clouds_is_shown_with_what_its_probes_take() -> None:
    words = channel_line(BETWEEN | PROBES)
    assert words.endswith("2,040 bytes/s promised of 8,000, probes take 80")
