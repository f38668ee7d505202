"""The swings that a signal is made of, by the matrix pencil: frequency, damping, amplitude.

Equal samples of a sum of damped sines obey a linear recurrence, and its roots are the modes (Hua
and Sarkar, 1990). Taken from the singular vectors of the signal's Hankel matrix it stands far more
noise than Prony's equations, and unlike a Fourier transform it tells a mode that dies away from one
that does not, within a few periods of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gridstat.model.alarms.runs import Values

MODES_MAX: Final = 12
SINGULAR_SHARE_MIN: Final = 0.04
"""Weaker directions of the signal are taken for noise."""
POLE_MIN: Final = 0.3
POLE_MAX: Final = 1.1
"""Poles outside die within a few samples, or grow without measure: neither is a swing."""
UNTOLD_SHARE_MAX: Final = 0.1
"""Of the signal's energy; if the modes leave more untold, they do not describe it."""
SAMPLES_MIN: Final = 18
LAG_STEPS: Final = 2
LAGS_MAX: Final = 24
"""The recurrence looks at every second sample, so swings of up to a quarter of the sampling rate
are told apart, over a third of the samples, at which noise moves the modes least."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A damped sine; its amplitude is that in the middle of the samples."""

    frequency_hz: float
    damping_ratio: float
    amplitude: float
    amplitude_min: float
    energy: float


def modes_of(samples: Values, step_s: float) -> list[Mode]:
    """The modes that swing, the strongest first; none if modes do not describe the signal."""
    assert len(samples) >= SAMPLES_MIN
    signal = samples - samples.mean()
    poles = _poles(signal)
    if not len(poles):
        return []
    powers: NDArray[np.complex128] = poles[None, :] ** np.arange(len(signal))[:, None]
    weights = np.linalg.lstsq(powers, signal.astype(complex), rcond=None)[0]
    untold = signal - (powers @ weights).real
    if float(untold @ untold) > UNTOLD_SHARE_MAX * float(signal @ signal):
        return []
    found = [
        _mode(complex(pole), 2 * np.abs(weight) * np.abs(sines), step_s)
        for pole, weight, sines in zip(poles, weights, powers.T, strict=True)
        if pole.imag > 0  # A swing has two poles, one above the other.
    ]
    return sorted(found, key=lambda mode: -mode.energy)


def dominant_mode(samples: Values, step_s: float, low_hz: float, high_hz: float) -> Mode | None:
    """The strongest swing between two frequencies."""
    found = (mode for mode in modes_of(samples, step_s) if low_hz <= mode.frequency_hz <= high_hz)
    return next(found, None)


def _poles(signal: Values) -> NDArray[np.complex128]:
    lags = min(LAGS_MAX, len(signal) // (3 * LAG_STEPS))
    hankel = np.lib.stride_tricks.sliding_window_view(signal, LAG_STEPS * lags + 1)[:, ::LAG_STEPS]
    # The right singular vectors; their matrix is so small that no library starts threads for it.
    powers, vectors = np.linalg.eigh(hankel.T @ hankel)
    order = min(MODES_MAX, lags - 1, int(np.sum(powers > SINGULAR_SHARE_MIN**2 * powers[-1])))
    if powers[-1] <= 0.0 or order == 0:
        return np.empty(0, np.complex128)
    kept = vectors[:, len(powers) - order :]
    shifted = np.linalg.eigvals(np.linalg.lstsq(kept[:-1], kept[1:], rcond=None)[0])
    poles = np.power(shifted.astype(np.complex128), 1 / LAG_STEPS)
    sizes = np.abs(poles)
    return poles[(sizes >= POLE_MIN) & (sizes <= POLE_MAX)]


def _mode(pole: complex, envelope: Values, step_s: float) -> Mode:
    exponent = np.log(pole) / step_s
    return Mode(
        frequency_hz=float(exponent.imag) / (2 * np.pi),
        damping_ratio=float(-exponent.real / abs(exponent)),
        amplitude=float(envelope[len(envelope) // 2]),
        amplitude_min=float(min(envelope[0], envelope[-1])),
        energy=float(envelope @ envelope) / 2,
    )
