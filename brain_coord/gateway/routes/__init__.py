"""The quiet routes of the API: models, receipts, nodes, dry runs, health. Documented at /docs."""
