"""The management plane of one cloud: what it has, what it has promised, and who may have more.

It imports model and net only, and reads no clock and no socket: drivers stand outside. Start at
`leaf_broker.py`. The rooms, each importing only those before it:

    capacity     what the cloud has and has promised; admission, allocation, paths
    records      operations, the durable journal, the registry
    tables       what each router is to have, and whether it has it
    effects      what an operation does once it is decided
    routers      sessions with routers, their health, moves from path to path
    requests     what end-points ask for and are told
    operators    what people ask for and are shown
"""
