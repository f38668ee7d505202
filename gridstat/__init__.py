"""gridstat: the state of a power grid, delivered under a contract per subscription.

Start reading at `model` (words and laws), then `net.codec` (their bytes), then `core` (the event
path). The package root exports public names only.
"""

from gridstat.model.errors import GridStatError
from gridstat.model.rate_law import Period

__all__ = ["GridStatError", "Period"]
