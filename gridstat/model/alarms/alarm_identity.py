"""What makes an alarm the same alarm: its onset and a number of its rule and variable.

The number is 16 bits of a checksum, the same on every machine and in every run. Where two alarms
begin in the same nanosecond with the same number, the later by name takes the next free one: all
alarms of one instant are found together, so that is the same whenever it is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

SEQUENCES: Final = 1 << 16


def sequence_of(rule: str, variable: str) -> int:
    """The 16-bit number of a rule's alarms on a variable."""
    checksum = crc32(f"{rule}\0{variable}".encode())
    return (checksum >> 16) ^ (checksum & (SEQUENCES - 1))


def distinct_sequences(
    alarms: Iterable[tuple[int, str, str]],
) -> dict[tuple[int, str, str], int]:
    """For each (onset, rule, variable) its number, no two the same at one onset."""
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
