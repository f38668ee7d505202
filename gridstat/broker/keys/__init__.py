"""Seeds of sealed channels: who gives them in a cloud (`leaf_keys.py`) and between clouds
(`tree_keys.py`).

Nothing here is durable: a journal holds no secret, and every new session brings new seeds.
"""
