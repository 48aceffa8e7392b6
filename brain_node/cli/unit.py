"""The text of systemd units for the agent. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from brain_node.exit_codes import PERMANENT

UNIT_NAME: Final = "brain-node.service"
OPEN_FILES: Final = 65536
"""What a node with the most slots needs, many times over."""
_STOP_MARGIN_S: Final = 30
"""Time for the engines to end, after the streams had theirs."""

_HEAD: Final = """\
# Made by `brain-node service install`.
[Unit]
Description=Brain Node: lends this machine's GPUs to a coordinator
Wants=network-online.target
After=network-online.target nvidia-persistenced.service
# A coordinator may be away for days: never give up by count.
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
RestartSec=15
# Faults that only a person can mend; see the exit codes in the README.
RestartPreventExitStatus={permanent}
# The agent ends its engines itself, in order; what is left after the limit is killed with it.
KillMode=mixed
TimeoutStopSec={stop_s}
LimitNOFILE={open_files}
# A core file would hold the node's key and prompts, and of an engine tens of gigabytes.
LimitCORE=0
"""

_SYSTEM: Final = """\
# A user of its own that exists only while the service runs; its files are in /var/lib/brain-node.
DynamicUser=yes
StateDirectory=brain-node
StateDirectoryMode=0700
CacheDirectory=brain-node
Environment=HOME=/var/lib/brain-node XDG_CACHE_HOME=/var/cache/brain-node
Environment=BRAIN_NODE_DATA_DIR=/var/lib/brain-node
{credential}\
# Device files that CUDA would otherwise make through a setuid program.
ExecStartPre=+-/usr/bin/nvidia-modprobe -c0 -u
NoNewPrivileges=yes
UMask=0077
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
CapabilityBoundingSet=
# Not set on purpose: PrivateDevices and ProtectClock hide the cards, MemoryDenyWriteExecute stops compiled kernels.
"""

_CREDENTIAL: Final = "${CREDENTIALS_DIRECTORY}/token"
"""As ExecStart finds it, also where systemd is too old for `%d`."""

_CREDENTIALS: Final = """\
LoadCredential=token:{path}
# What stands for a token file that is gone, which must not stop a node that has joined: none.
SetCredential=token:\\n
"""

_TAIL: Final = """
[Install]
WantedBy={target}
"""


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """What a unit starts.

    The words of the command hold no secret: a join token comes as a file.
    """

    command: Sequence[str]
    system: bool
    drain_timeout_s: float
    token_file: str | None = None
    """For a system unit: handed over as a credential, since the unit's user cannot read the operator's files."""


def unit_text(spec: UnitSpec) -> str:
    """The unit file."""
    words = list(spec.command)
    if spec.system and spec.token_file:
        words += ["--token-file", _CREDENTIAL]
    head = _HEAD.format(
        command=" ".join(_quoted(word) for word in words),
        permanent=" ".join(map(str, PERMANENT)),
        open_files=OPEN_FILES,
        stop_s=int(spec.drain_timeout_s) + _STOP_MARGIN_S,
    )
    credential = _CREDENTIALS.format(path=spec.token_file.replace("%", "%%")) if spec.token_file else ""
    middle = _SYSTEM.format(credential=credential) if spec.system else ""
    return head + middle + _TAIL.format(target="multi-user.target" if spec.system else "default.target")


def _quoted(word: str) -> str:
    """A word of ExecStart: `%` and `$` mean themselves, blanks and quotes stay inside."""
    if word == _CREDENTIAL:
        return word
    word = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    return f'"{word}"' if not word or any(c in word for c in " \t'\"\\;") else word
