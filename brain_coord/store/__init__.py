"""The coordinator's memory: tables, statements, the group-commit writer, migrations.

`Store` (in `store`) is what the event loop uses; `session` is what commands of the shell use beside it.
"""
