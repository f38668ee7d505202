"""Commands, daemons and displays with which people start, control and watch a grid.

No other package imports this one. `config/` reads files, `daemons/` has the brokers, routers and
recorders as processes, `processes/` the processes that `gridstat up` starts, `live/` the displays,
`simulation/` the PMUs of a demonstration, `cli/` the command line. Start reading at `cli/main.py`.
"""
