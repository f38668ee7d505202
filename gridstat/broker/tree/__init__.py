"""Brokers above clouds: contracts from cloud to cloud, of any depth. Start at `qos_broker.py`.

One recursion: a broker turns a segment into segments of its children and channels of its own.
"""
