"""Commands, daemons and displays with which people start, control and watch a grid.

Composes everything and is imported by nobody. `config/` reads files, `static_plan.py` and
`compose.py` turn a description into running parts, `processes/` holds the processes that `gridstat
up` starts, `live/` shows them, `cli/` is the command line. Start reading at `cli/main.py`.
"""
