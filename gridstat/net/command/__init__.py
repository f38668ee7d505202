"""The command plane: typed messages in bounded frames over mutual TLS, and their authorization.

May import model. Start reading at `messages.py` (all messages), then `machine.py` (events and
instructions of protocol logic), then `session.py` (transport).
"""
