"""The node's outbound connections: link session, slot pool, back-off."""
