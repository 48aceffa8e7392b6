"""Brain Node: the agent that lends a machine's GPUs to a coordinator."""

__version__ = "0.1.0"
