"""Sizes and periods that both ends of the node protocol share."""

from typing import Final

PROTOCOL: Final = 1
"""Version of the node protocol spoken by this package."""

MAX_LINK_MESSAGE_BYTES: Final = 256 * 1024
"""Largest text message on a link or slot; a hello with many cards and models stays far below."""

UNAUTHENTICATED_BYTES: Final = 64 * 1024
"""Largest message before a hello was proved or a slot ticket was checked."""

UNAUTHENTICATED_S: Final = 10.0
"""How long a connection may take to prove itself, in seconds."""

FRAME_BYTES: Final = 256 * 1024
"""Largest binary frame on a slot, in either direction."""

LEAST_FRAME_BYTES: Final = 1024
MOST_FRAME_BYTES: Final = 16 * 1024 * 1024
"""What a coordinator may tell instead, at the least and at the most: each frame costs both ends, and is held by one."""

BODY_BYTES: Final = 32 * 1024 * 1024
"""Default limit of a request body; the coordinator tells the one in force in `welcome`."""

MOST_BODY_BYTES: Final = 1024 * 1024 * 1024
"""Largest limit that it may tell: a node holds a body until it is whole."""

HEARTBEAT_S: Final = 15.0
"""Default period of a node's heartbeats, in seconds."""

PING_S: Final = 20.0
"""Default period of RTT pings, in seconds; below the 30 s at which common proxies cut idle sockets."""

SHORTEST_PERIOD_S: Final = 0.1
LONGEST_HEARTBEAT_S: Final = 300.0
"""A node keeps within these, whatever periods it is told: neither busy with heartbeats alone, nor silent on a dead line."""

MISSED_HEARTBEATS: Final = 3
"""A node silent for this many heartbeats is OFFLINE."""

LINK_AGAIN: Final = 4001
"""Close code of a link that the coordinator ends though nothing is wrong: the node is to link again, at whichever
coordinator its address leads to then."""

SPARE_SLOTS: Final = 2
"""Idle slot connections that a node keeps open ahead of demand."""

MAX_SLOTS: Final = 1024
"""Most slots one node may offer."""

MAX_MODELS: Final = 64
"""Most models one node may offer."""

ID_CHARS: Final = 64
"""Longest free-text name (region, model id part, card name) that a node may claim."""

TOKEN_CHARS: Final = 256
"""Longest join token."""
