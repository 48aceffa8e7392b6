"""Environment variables that look like a program's settings and set nothing. Pure."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from brain_node.contract.nearest import SUGGESTED, nearest

_SERVICE_LINK: Final = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")
_SERVICE_URL: Final = re.compile(r"(tcp|udp|sctp)://")
"""What Kubernetes tells every container of a service: one called `brain-coord` begins as the settings do."""

_FAMILY: Final = "BRAIN_"
_PROGRAMS: Final = ("BRAIN_NODE_", "BRAIN_COORD_")
_ALIKE: Final = 0.85
"""How much a name outside both programs' own must look like a setting to be taken for one that was mistyped."""


def strangers(environ: Mapping[str, str], prefix: str, known: Iterable[str]) -> list[str]:
    """One line for each variable that somebody may have meant as a setting, with the names that come near.

    A key of a file that is none is refused, such a variable only told: a file is the program's own, while whoever starts
    it may put more into the environment than is for it. An empty variable is an unset one.

    Args:
        environ: the environment.
        prefix: what the program's own variables begin with.
        known: every variable that the program reads.
    """
    names = set(known)
    lines = []
    for name in sorted(environ.keys() - names):
        if environ[name] and (meant := _meant(name, environ[name], prefix, names)) is not None:
            hint = f"Did you mean {' or '.join(meant)}?" if meant else "No setting has this name; the README lists them"
            lines.append(f"environment {name} sets nothing. {hint}")
    return lines


def _meant(name: str, value: str, prefix: str, known: Iterable[str]) -> list[str] | None:
    """The settings that may have been meant; `None` where none was."""
    if not name.startswith(_PROGRAMS):
        return (name.startswith(_FAMILY) and difflib.get_close_matches(name, known, SUGGESTED, _ALIKE)) or None
    if not name.startswith(prefix) or _SERVICE_LINK.search(name) or _SERVICE_URL.match(value):
        return None
    # Without what all have in common, which would make any two of them look alike.
    whole = {each.removeprefix(prefix): each for each in known}
    short = name.removeprefix(prefix)
    near = [end for end in sorted(whole) if end.endswith(f"_{short}")] or nearest(short, whole)
    return [whole[end] for end in near[:SUGGESTED]]
