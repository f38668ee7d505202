"""Modes of a signal by the matrix pencil: frequency, damping and amplitude of each oscillation.

Equidistant samples of a sum of damped sines obey a linear recurrence whose roots are the modes (Hua
and Sarkar, 1990). Computed from the singular vectors of the signal's Hankel matrix, the method
tolerates far more noise than Prony's equations. Unlike a Fourier transform it distinguishes a
decaying mode from a sustained one within a few periods. Windows are processed in a batch, each
independently of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gridstat.model.alarms.runs import Values

    Poles = NDArray[np.complex128]

MODES_MAX: Final = 12
SINGULAR_SHARE_MIN: Final = 0.04
"""Minimum singular value as a share of the largest; weaker directions count as noise."""
POLE_MIN: Final = 0.3
POLE_MAX: Final = 1.25
"""Range of poles; those outside decay within a few samples, or grow without bound."""
RESIDUAL_SHARE_MAX: Final = 0.2
"""Maximum share of the signal's energy in the residual; with more, the modes do not fit."""
SAMPLES_MIN: Final = 18
LAGS_MAX: Final = 24
"""Maximum order of the recurrence. About a third of the samples minimises the influence of noise.
All samples are used: with every second one, frequencies above a quarter of the sampling rate
would be aliased. From 26 rows on, the linear-algebra library starts threads."""
RIDGE: Final = 1e-11
"""Regularisation that bounds the weights of two equal poles."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A damped sine; `amplitude` is that in the middle of the samples."""

    frequency_hz: float
    damping_ratio: float
    amplitude: float
    amplitude_first: float
    amplitude_last: float
    energy: float

    @property
    def amplitude_min(self) -> float:
        return min(self.amplitude_first, self.amplitude_last)


def modes_of(samples: Values, step_s: float) -> list[Mode]:
    """Return the oscillating modes, strongest first; none if modes do not fit the signal."""
    return modes_of_each(samples[None, :], step_s)[0]


def dominant_mode(samples: Values, step_s: float, low_hz: float, high_hz: float) -> Mode | None:
    """Return the strongest mode between two frequencies."""
    return dominant_modes(samples[None, :], step_s, low_hz, high_hz)[0]


def dominant_modes(
    windows: Values, step_s: float, low_hz: float, high_hz: float
) -> list[Mode | None]:
    """Return the strongest mode of each window (a row) between two frequencies."""
    return [
        next((mode for mode in modes if low_hz <= mode.frequency_hz <= high_hz), None)
        for modes in modes_of_each(windows, step_s)
    ]


def modes_of_each(windows: Values, step_s: float) -> list[list[Mode]]:
    """Return the result of `modes_of` for each row."""
    assert windows.shape[1] >= SAMPLES_MIN
    signals = windows - windows.mean(axis=1, keepdims=True)
    poles = _poles(signals)
    sizes = np.abs(poles)
    is_kept = (sizes >= POLE_MIN) & (sizes <= POLE_MAX)
    sines = _sines(np.where(is_kept, poles, 0.0), signals.shape[1])
    weights = _weights(sines, signals)
    residual = signals - (sines @ weights[:, :, None])[:, :, 0].real
    is_fitting = (residual**2).sum(axis=1) <= RESIDUAL_SHARE_MAX * (signals**2).sum(axis=1)
    envelopes = 2 * np.abs(weights)[:, None, :] * np.abs(sines)
    energies = (envelopes**2).sum(axis=1) / 2
    # An oscillation has two conjugate poles; the upper one is used.
    is_oscillating = is_kept & is_fitting[:, None] & (poles.imag > 0)
    return [
        [
            _mode(complex(poles[row, at]), envelopes[row, :, at], float(energies[row, at]), step_s)
            for at in np.argsort(-energies[row], kind="stable")
            if is_oscillating[row, at]
        ]
        for row in range(len(windows))
    ]


def _poles(signals: Values) -> Poles:
    """Return a row of poles for each signal; poles of noise are 0."""
    lags = min(LAGS_MAX, signals.shape[1] // 3)
    hankel = np.lib.stride_tricks.sliding_window_view(signals, lags + 1, axis=1)
    # The right singular vectors.
    powers, vectors = np.linalg.eigh(hankel.transpose(0, 2, 1) @ hankel)
    count = min(MODES_MAX, lags - 1)
    powers, vectors = powers[:, -count:], vectors[:, :, -count:]
    is_signal = (powers > SINGULAR_SHARE_MIN**2 * powers[:, -1:]) & (powers > 0.0)
    kept = np.where(is_signal[:, None, :], vectors, 0.0)
    # kept[:-1] @ shift = kept[1:] by least squares; with their last row, columns are orthonormal.
    last = kept[:, -1, :]
    pulls = kept[:, :-1].transpose(0, 2, 1) @ kept[:, 1:]
    left = np.maximum(1.0 - (last**2).sum(axis=1), RIDGE)
    along = (last[:, None, :] @ pulls) / left[:, None, None]
    shifts = np.linalg.eigvals(pulls + last[:, :, None] * along)
    return shifts.astype(np.complex128)


def _sines(poles: Poles, count: int) -> Poles:
    """Return the powers of each pole as a column of norm 1."""
    sines: Poles = np.empty((len(poles), count, poles.shape[1]), np.complex128)
    sines[:, 0] = poles != 0.0
    known, power = 1, poles
    while known < count:  # Double the known powers by one multiplication.
        more = min(known, count - known)
        sines[:, known : known + more] = sines[:, :more] * power[:, None, :]
        known, power = known + more, power * power
    lengths = np.sqrt((sines.real**2 + sines.imag**2).sum(axis=1, keepdims=True))
    return sines / np.where(lengths > 0.0, lengths, 1.0)


def _weights(sines: Poles, signals: Values) -> Poles:
    """Return the weight of each sine in the signal by least squares."""
    adjoint = sines.conj().transpose(0, 2, 1)
    gram = adjoint @ sines
    positions = np.arange(gram.shape[1])
    gram[:, positions, positions] = 1.0 + RIDGE
    found = np.linalg.solve(gram, adjoint @ signals[:, :, None])
    return found[:, :, 0].astype(np.complex128)


def _mode(pole: complex, envelope: Values, energy: float, step_s: float) -> Mode:
    exponent = np.log(pole) / step_s
    return Mode(
        frequency_hz=float(exponent.imag) / (2 * np.pi),
        damping_ratio=float(-exponent.real / abs(exponent)),
        amplitude=float(envelope[len(envelope) // 2]),
        amplitude_first=float(envelope[0]),
        amplitude_last=float(envelope[-1]),
        energy=energy,
    )
