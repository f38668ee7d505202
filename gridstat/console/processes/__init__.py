"""The processes that `gridstat up` starts: one a router, one for the PMUs, one for the subscribers.

Each is driven by JSON lines on its standard input and ends when that closes, so none outlives the
one that started it. `work_loop.py` is the loop of them all, `supervision.py` decides what is
started when, `supervisor.py` does it. No pickle travels: a line becomes plain values, never code.
"""
