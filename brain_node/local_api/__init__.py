"""The agent's door for its own machine: HTTP over a unix socket that only its owner can open."""
