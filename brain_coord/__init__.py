"""Brain Coord: the coordinator that routes, measures and signs."""

__version__ = "0.1.0"
