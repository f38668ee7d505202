"""Requests of end-points: attach, publish, subscribe, change, look up; their answers and notices.

Start at `request_intake.py`, which checks every request; each of the other modules decides one
family of requests.
"""
