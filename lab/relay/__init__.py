"""Links that delay, lose, burst, duplicate, reorder, corrupt, slow down and break, by seed.

`law.py` says what becomes of the n-th frame; the C program beside it does it to real frames, and
`process.py` starts and steers that program. See ADR-0006 for why this is our own.
"""

from lab.relay.law import Direction, Fate, LinkFaults, fates
from lab.relay.process import Relay, WireCounters

__all__ = ["Direction", "Fate", "LinkFaults", "Relay", "WireCounters", "fates"]
