"""Identity of an alarm: its onset, and a number from its rule and variable.

The number is 16 bits of a checksum, equal on every machine and in every run. Where two alarms begin
in the same nanosecond with the same number, the later by name gets the next free one. All alarms of
one instant are found together, so the result is always the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

SEQUENCES: Final = 1 << 16


def sequence_of(rule: str, variable: str) -> int:
    """Return the 16-bit number of a rule's alarms on a variable."""
    checksum = crc32(f"{rule}\0{variable}".encode())
    return (checksum >> 16) ^ (checksum & (SEQUENCES - 1))


def distinct_sequences(
    alarms: Iterable[tuple[int, str, str]],
) -> dict[tuple[int, str, str], int]:
    """Return the number of each (onset, rule, variable), distinct at each onset."""
    taken: set[tuple[int, int]] = set()
    numbers: dict[tuple[int, str, str], int] = {}
    for onset_ns, rule, variable in sorted(set(alarms)):
        number = sequence_of(rule, variable)
        for _ in range(SEQUENCES):
            if (onset_ns, number) not in taken:
                break
            number = (number + 1) % SEQUENCES
        taken.add((onset_ns, number))
        numbers[onset_ns, rule, variable] = number
    return numbers
