"""Properties of a simulated cloud: always, at every answer, at rest, and when all have left."""

from lab.simulation.properties.checks import Properties

__all__ = ["Properties"]
