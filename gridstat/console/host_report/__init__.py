"""What a machine grants against what gridstat wants.

`probes.py` asks the machine and gives plain facts, `findings.py` judges them; so the judgement is
tested without a machine.
"""
