"""The management plane of a cloud and of the tree above: what there is, and who may have more.

It imports model and net only, and reads no clock and no socket: drivers stand outside. Start at
`leaf_broker.py`, or above clouds at `tree/qos_broker.py`. The rooms, each importing only those
before it:

    capacity     what the cloud has and has promised; admission, allocation, paths
    records      operations, the durable journal, the registry
    tables       what each router is to have, and whether it has it
    effects      what an operation does once it is decided
    routers      sessions with routers, their health, moves from path to path
    requests     what end-points ask for and are told
    segments    the cloud as a part of a tree: its parent's orders, and what it asks there
    operators    what people ask for and are shown
    tree         brokers above clouds
"""
