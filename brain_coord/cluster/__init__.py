"""Several coordinators as one: a shared view of the fleet, one hop between them, limits that hold across them.

Nothing here is imported unless `[cluster]` is configured.
"""
