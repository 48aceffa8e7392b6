"""Exit codes of `brain-node`, as its systemd unit reads them.

The unit restarts the agent after any code but those in `PERMANENT`: a fault that only a person can mend must not loop.
"""

from typing import Final

OK: Final = 0
"""Done, or stopped as asked."""

USAGE: Final = 2
"""The command line is wrong."""

UNAVAILABLE: Final = 69
"""Something needed is not there: no agent runs, no usable driver."""

TEMPORARY: Final = 75
"""Failed now, may work later."""

AUTH_REFUSED: Final = 77
"""The coordinator refused this node for good: bad join token, banned."""

CONFIG: Final = 78
"""Settings, identity or protocol are wrong; restarting cannot help."""

PERMANENT: Final = (USAGE, AUTH_REFUSED, CONFIG)
"""Codes after which nothing should start the agent again by itself (`RestartPreventExitStatus`)."""
