"""Publishers and subscribers: the API of applications, with its sender and receiver.

May import model, net and core. Start reading at `connection.py`; then `endpoint_session.py` for the
session with the cloud, `subscription_dispatch.py` for the path of an event to the application.
Sender and receiver also work on their own, without any cloud:

    sender = Sender(7, ("127.0.0.1", 4000, 4001))
    sender.send(12, 49.98)
"""

from gridstat.core._ends import Sender
from gridstat.core.samples import SAMPLE, Sample, Samples
from gridstat.endpoint.receiver import Receiver

__all__ = ["SAMPLE", "Receiver", "Sample", "Samples", "Sender"]
