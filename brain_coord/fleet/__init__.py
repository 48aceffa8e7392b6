"""Nodes as the coordinator knows them: registry, liveness, reliability."""
