"""The ends of the event path, usable on their own: a sender and a receiver.

May import model, net and core. Start reading at `receiver.py`; the C behind it is
`core/sender.c` and `core/receiver.c`.

    sender = Sender(7, ("127.0.0.1", 4000, 4001))
    sender.send(12, 49.98)
"""

from gridstat.core._ends import Sender
from gridstat.core.samples import SAMPLE, Sample, Samples
from gridstat.endpoint.receiver import Receiver

__all__ = ["SAMPLE", "Receiver", "Sample", "Samples", "Sender"]
