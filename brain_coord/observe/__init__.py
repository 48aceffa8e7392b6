"""Metrics and structured logs as views of records."""
