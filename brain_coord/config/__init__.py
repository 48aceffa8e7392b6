"""The configuration file: its tables, where values may come from, and what is wrong with them in words."""

from brain_coord.config.faults import ConfigError, Fault
from brain_coord.config.load import FILE_NAME, Loaded, load

__all__ = ["FILE_NAME", "ConfigError", "Fault", "Loaded", "load"]
