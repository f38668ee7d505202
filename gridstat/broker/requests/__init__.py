"""What end-points ask for: attach, publish, subscribe, change, look up; and what they are told.

Start at `requests.py`, where every request comes in; each of the others answers one family of them.
"""
