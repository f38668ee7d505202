"""Figures as people read them."""

from __future__ import annotations

from typing import Final

US_PER_MS: Final = 1_000
WHOLE_MS: Final = 100


def milliseconds(latency_us: float) -> str:
    """Three digits, and all of those before the point: `0.5 ms`, `12.3 ms`, `2,000 ms`."""
    latency_ms = latency_us / US_PER_MS
    return f"{latency_ms:,.0f} ms" if latency_ms >= WHOLE_MS else f"{latency_ms:.3g} ms"
