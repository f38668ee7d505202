"""Row choice of a DataFrame over a log: an interval of time, and variables by name or pattern.

A choice is fixed by the options `from`, `to` and `variables` of one `load`, and never by the
filters of a query: Spark shares what a filter has left out between all scans of a DataFrame
(ADR-0023). Slices without a chosen row are not read; in the other slices every row is checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gridstat.model.cloud import NAME_BYTES_MAX, check_stored_pattern, is_pattern
from gridstat.model.errors import ConfigurationError, LayoutError
from gridstat.pipeline.time_spans import within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

NS_PER_S: Final = 1_000_000_000
INT64_MAX: Final = (1 << 63) - 1
VARIABLES_MAX: Final = 1_000
"""Names and patterns of one choice; it travels to every task."""
MOMENT_CHARACTERS_MAX: Final = 40
_MOMENT: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?(Z|[+-]\d{2}:\d{2})",
    re.ASCII,
)
_MOMENT_HINT: Final = (
    "write 2026-01-01T00:00:00Z, or with +01:00 as its zone, or nanoseconds since 1970"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPES: Final = r"in a name, write \\ for a backslash and \, for a comma"
_ESCAPE: Final = re.compile(r"\\(.?)", re.DOTALL)
_TOKEN: Final = re.compile(r"\\([\\,])|(,)|([^\\,]+)")
"""A comma or backslash of a name, escaped; a comma between two patterns; other characters."""


@dataclass(frozen=True, slots=True)
class RowChoice:
    """Interval from one instant up to, and without, another, and patterns of variables.

    None is no bound, and no patterns are all variables.
    """

    from_ns: int | None = None
    to_ns: int | None = None
    variables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.from_ns is not None and self.to_ns is not None and self.from_ns >= self.to_ns:
            raise ConfigurationError(
                f"from {self.from_ns} to {self.to_ns} has no instant in it",
                hint="give `from` before `to`; rows at `to` itself are left out",
            )

    @property
    def latest_ns(self) -> int | None:
        """The last instant that is chosen."""
        return None if self.to_ns is None else self.to_ns - 1

    @property
    def options(self) -> dict[str, str]:
        """The options by which `read_choice` makes the same choice."""
        given = {"from": self.from_ns, "to": self.to_ns, "variables": _joined(self.variables)}
        return {name: str(value) for name, value in given.items() if value not in {None, ""}}

    def are_within(self, times_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the times within the interval."""
        if self.from_ns is None and self.to_ns is None:
            return np.ones(len(times_ns), dtype=bool)
        return within(times_ns, ((self.from_ns, self.latest_ns),))

    def are_named(self, names: pa.Array) -> NDArray[np.bool_]:
        """Return a mask of the names that match; a null name matches only if there is no
        pattern."""
        if not self.variables:
            return np.ones(len(names), dtype=bool)
        known = names.dictionary_encode()  # Each name is compared once, however many rows have it.
        exact = pa.array([one for one in self.variables if not is_pattern(one)], pa.string())
        found = pc.is_in(known.dictionary, exact)
        for pattern in filter(is_pattern, self.variables):
            found = pc.or_(found, pc.match_substring_regex(known.dictionary, _expression(pattern)))
        of_rows = found.take(known.indices).fill_null(False)  # noqa: FBT003 - Arrow's way.
        chosen: NDArray[np.bool_] = of_rows.to_numpy(zero_copy_only=False)
        return chosen


def read_choice(options: Mapping[str, str]) -> RowChoice:
    """The choice that options make; raises with the option's name."""
    text = options.get("variables")
    return RowChoice(
        from_ns=_instant_ns(options, "from"),
        to_ns=_instant_ns(options, "to"),
        variables=() if text is None else _patterns(text),
    )


def _instant_ns(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    moment_ns = _moment_ns(text.strip()) if len(text) <= MOMENT_CHARACTERS_MAX else None
    if moment_ns is None:
        raise ConfigurationError(
            f"{name} {text[:MOMENT_CHARACTERS_MAX]!r} is no time with a zone", hint=_MOMENT_HINT
        )
    if not 0 <= moment_ns <= INT64_MAX:
        raise ConfigurationError(
            f"{name} {text!r} is before 1970, or after 2262", hint="records have times in between"
        )
    return moment_ns


def _moment_ns(text: str) -> int | None:
    """The instant in nanoseconds since 1970; None if the text is no time, or has no zone."""
    if text.isascii() and text.isdecimal():
        return int(text)
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    day, minute, second, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{minute}:{second or '00'}{zone}")
    except ValueError:
        return None
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * NS_PER_S + int((fraction or "").ljust(9, "0"))


def _joined(patterns: tuple[str, ...]) -> str:
    """Return the text from which `_patterns` reads these patterns."""
    return ",".join(re.sub(r"[\\,]", r"\\\g<0>", pattern) for pattern in patterns)


def _patterns(text: str) -> tuple[str, ...]:
    if len(text) > VARIABLES_MAX * (2 * NAME_BYTES_MAX + 2):
        raise ConfigurationError(
            f"variables of {len(text):,} characters", hint=f"at most {VARIABLES_MAX:,} variables"
        )
    patterns = tuple(dict.fromkeys(_separated(text)))
    if len(patterns) > VARIABLES_MAX:
        raise ConfigurationError(
            f"{len(patterns):,} variables", hint=f"at most {VARIABLES_MAX:,}; patterns name many"
        )
    for pattern in patterns:
        try:
            check_stored_pattern(pattern)
        except LayoutError as error:
            raise ConfigurationError(
                f"variables: {error.args[0]}",
                hint="names or patterns with commas between them: c1/*/frequency,c2/**; "
                + _ESCAPES,
            ) from error
    return patterns


def _separated(text: str) -> list[str]:
    """Split at the commas between patterns, and undo the escapes in them."""
    if any(found[1] not in {",", "\\"} for found in _ESCAPE.finditer(text)):
        raise ConfigurationError(
            "variables: a backslash has neither a comma nor a backslash after it", hint=_ESCAPES
        )
    parts = [""]
    for escaped, separator, plain in _TOKEN.findall(text):
        if separator:
            parts.append("")
        else:
            parts[-1] += escaped or plain
    return [part.strip() for part in parts]


def _expression(pattern: str) -> str:
    """The pattern as a regular expression for Arrow, with the meaning of `model.cloud.matches`."""
    parts = pattern.split("/")
    is_open = parts[-1] == "**"
    fixed = [
        "[^/]*" if part == "*" else re.escape(part) for part in parts[: -1 if is_open else None]
    ]
    return rf"(?s)\A{'/'.join([*fixed, '.*'] if is_open else fixed)}\z"
