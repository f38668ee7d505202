"""The management plane of a cloud and of the tree of brokers above clouds.

The package imports model and net only, and reads no clock and no socket: drivers call it. Start at
`leaf_broker.py`, or above clouds at `tree/qos_broker.py`. Each folder imports only those before
it:

    capacity     resources and reservations; admission, allocation, paths
    records      operations, the durable journal, the registry
    tables       the wanted table of each router, and its confirmation
    effects      changes that an operation makes to registry, reservations and tables
    routers      sessions with routers, their health, moves from path to path
    requests     requests of end-points, their answers, and notices
    segments     the cloud below a parent: segments, contracts with other clouds, borders
    operators    commands of operators, surveys
    tree         brokers above clouds
    floods       limited flooding, the capability of both kinds of broker

A broker is an ordered list of capabilities (`capability.py`). `leaf_broker.py` and
`tree/components.py` compose the lists, and no other file outside `floods` imports that folder.
"""
