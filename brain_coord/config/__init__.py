"""The configuration file: its tables, where values may come from, and what is wrong with them in words."""

from brain_coord.config.faults import ConfigError, Fault
from brain_coord.config.load import DATABASE_URL, FILE_NAME, Loaded, database_url, load

__all__ = ["DATABASE_URL", "FILE_NAME", "ConfigError", "Fault", "Loaded", "database_url", "load"]
