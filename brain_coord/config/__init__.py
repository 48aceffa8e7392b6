"""The configuration file: its tables, where values may come from, and what is wrong with them in words."""
