"""What must hold in a tree of clouds, at every moment, at rest, and after everybody has left.

Start at `checks.py`. Nothing here asks a broker whether all is well: contracts are held against
what others have of them, and against the tables of the routers.
"""
