"""Bytes and sockets: knows how to say things, not what to say.

May import `model` only. Start reading at `codec/datagram.py`, the outermost bytes of an event.
"""
