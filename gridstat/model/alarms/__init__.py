"""Laws of alarms: conditions on a stream of events, and the onset of an alarm.

Every law has a finite memory: the onset of an alarm depends on no data older than `look_back_ns`.
The alarms of an interval are therefore a pure function of the data, and a day evaluated at once or
in any pieces has the same alarms. Start at `runs.py`, the law that all share; `limits.py`,
`silence.py` and `oscillation.py` define conditions, `ringdown.py` measures oscillations, and
`alarm_identity.py` numbers alarms.
"""
