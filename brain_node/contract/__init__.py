"""What a node and a coordinator agree on: wire messages, limits, the model allowlist, node identity."""
