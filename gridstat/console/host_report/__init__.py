"""Report of what a machine grants, compared with what gridstat needs.

`probes.py` asks the machine and gives plain facts, `findings.py` judges them; so the judgement is
tested without a machine.
"""
