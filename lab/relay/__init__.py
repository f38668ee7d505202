"""Links that delay, lose, burst, duplicate, reorder, corrupt, slow down and break, by seed.

`law.py` determines the fate of the n-th frame; the C program beside it applies it to real frames,
and `process.py` starts and controls that program. ADR-0006 has the reasons for a relay of our own.
"""

from lab.relay.law import Direction, Fate, LinkFaults, fates
from lab.relay.process import Relay, WireCounters

__all__ = ["Direction", "Fate", "LinkFaults", "Relay", "WireCounters", "fates"]
