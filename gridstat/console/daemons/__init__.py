"""The long-running processes of a cloud, each one machine, its driver and what it moves.

May import everything. Start reading at `router_daemon.py`; `service.py`, `logs.py` and
`metrics_server.py` are what all daemons share.
"""
