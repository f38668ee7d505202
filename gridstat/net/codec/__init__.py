"""Message to bytes and back, each layout drawn above its decoder.

A datagram (`datagram.py`) holds events (`event.py`), an event holds a value (`value.py`).
Everything on the wire is big-endian; nothing on the wire becomes code.
"""
