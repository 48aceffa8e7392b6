"""Jobs between slots and engines: bytes in as they came, bytes out as they come."""
