"""Encodings, sessions and sockets, without any decision about what is sent.

May import `model` only. Start reading at `codec/datagram.py`, the outermost bytes of an event.
"""
