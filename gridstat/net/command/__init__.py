"""The command plane: typed messages in bounded frames over mutual TLS, and who may say what.

May import model. Start reading at `messages.py` (what is said), then `machine.py` (how protocol
logic hears and answers), then `session.py` (how it travels).
"""
