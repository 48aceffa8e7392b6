"""/network and the pages around it."""
