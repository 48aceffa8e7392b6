"""The schema's history, one alembic revision a file; `brain_coord.store.schema` applies them."""

HEAD = "0002"
"""The newest revision. Known without loading alembic, so that opening an up-to-date store stays quick."""
