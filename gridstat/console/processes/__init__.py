"""The processes of `gridstat up`: daemons of the cloud, and two that play PMUs and subscribers.

Start reading at `supervisor.py`; `pmus.py` and `subscribers.py` are the parts that are played.
"""
