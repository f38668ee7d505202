"""Keys of sealed channels in time: who gives a seed, and how both ends go on from it.

Pure machines without a clock: `seed_giver.py` (a broker or an edge router), `sending_keys.py` and
`receiving_keys.py` (the two ends of a channel), `channel_keys.py` (all channels of one process).
The derivation of one key is in `model/key_schedule.py`.
"""
