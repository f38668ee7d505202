"""Publishers and subscribers: the API of applications, and the ends of the event path below it.

May import model, net and core. Start reading at `connection.py`; then `endpoint_session.py` for
the talk with the cloud, `incoming.py` for the way of an event to the application. The ends work
on their own as well, without any cloud:

    sender = Sender(7, ("127.0.0.1", 4000, 4001))
    sender.send(12, 49.98)
"""

from gridstat.core._ends import Sender
from gridstat.core.samples import SAMPLE, Sample, Samples
from gridstat.endpoint.receiver import Receiver

__all__ = ["SAMPLE", "Receiver", "Sample", "Samples", "Sender"]
