"""Benches: what the coordinator and a node cost, next to their peers, on one stub engine in one run."""
