"""What an end-point asks to hear all that floods at its edges (S0 A.18, subscribe-all-flooding)."""

from __future__ import annotations

from gridstat.net.command.session_messages import Struct


class ListenToFloods(Struct, frozen=True, tag="HearFlooded"):
    """Send every flooded event of my edges to these ports, whatever it is of; ports 0: no more.

    Answered with the variables that flood now; whoever hears of another asks again.
    """

    data_port: int = 0
    urgent_port: int = 0
