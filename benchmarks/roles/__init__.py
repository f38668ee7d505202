"""Roles of the processes of a run: router, reference, publisher, subscriber.

Each is started by `python -m benchmarks.roles ROLE`, reads its plan as the first line on stdin, and
answers one JSON line per line until stdin closes.
"""
