"""Names of the counters in C, in the order of their structures; parity tests hold them to it.

Also what a refused commit means, in the order of `gs_commit_result`.
"""

from __future__ import annotations

from typing import Final

from gridstat.model.errors import LayoutError, LimitReached

CORE_COUNTERS: Final = (
    "in", None, "malformed_short", "malformed_version", "malformed_epoch", "malformed_length",
    "malformed_option", "unknown_channel", "unknown_variable", "policed_port", "policed_source",
    "policed_stamp", "policed_slot", "policed_jump", "policed_interval", "duplicate", "too_old",
    "not_due", "dispatched", "flooded", "flood_withheld", "newest_too_large",
    "sealed_unknown_channel", "sealed_unknown_epoch", "sealed_replayed", "sealed_forged",
    "sealed_plain", "datagrams_in", "bytes_in",
)  # fmt: skip
POLICED_REASONS: Final = tuple(
    name.removeprefix("policed_")
    for name in CORE_COUNTERS
    if name is not None and name.startswith("policed_")
)
"""Reasons for which the first hop refuses a publisher's event."""
SEALED_REASONS: Final = tuple(
    name for name in CORE_COUNTERS if name is not None and name.startswith("sealed_")
)
"""Datagrams that are not authentic: dropped before anything else, and no part of `in`."""
CHANNEL_COUNTERS: Final = (
    "due", "sent", "queued", "queue_full", "pool_empty", "send_failed", "datagrams_out",
    "bytes_out", "fallback", "mtu_changes", "probes_sent", "probes_failed",
    "replay_queued", "no_key", "unproven",
)  # fmt: skip
CHANNEL_DROPS: Final = ("queue_full", "pool_empty", "send_failed", "no_key", "unproven")
"""Reasons why an event that was due on a channel was not sent."""
SOURCE_FACTS: Final = (
    "heard_ns", "silent_ns", "datagrams", "lost", "reordered", "probes", "newest_counter",
)  # fmt: skip
"""Facts of an incoming channel, by the steady clock; `heard_ns` is 0 until the first datagram, and
`newest_counter` is the highest counter since the sender last started."""

SENDER_COUNTERS: Final = (
    "events", "sent", "send_failed", "would_block", "datagrams_out", "bytes_out", "fallback",
    "mtu_changes", "refused", "probes", "no_key",
)  # fmt: skip
RECEIVER_COUNTERS: Final = (
    "in", "malformed", "malformed_short", "malformed_version", "malformed_epoch",
    "malformed_length", "malformed_option", "unknown", "duplicate", "policed_jump", "delivered",
    "ring_full", "datagrams_in", "bytes_in", "probes", "newest_full", "policed_source",
    *SEALED_REASONS, "too_old",
)  # fmt: skip

_REFUSALS: Final = (
    (LimitReached, "no room for so many variables", "raise limits.variables_max"),
    (LimitReached, "too many aperiodic variables", "raise limits.rings_max"),
    (LayoutError, "a variable has too many divisors", "round some of them down to common ones"),
    (LimitReached, "no memory for so large a change", "commit in smaller parts"),
)


def check_committed(result: int) -> None:
    """Raise the error that a refused commit means."""
    if result != 0:
        refusal, message, hint = _REFUSALS[result - 1]
        raise refusal(message, hint=hint)
