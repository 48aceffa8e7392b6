"""What the pages show, as frozen records: pure functions of the registry, the classes and finished requests."""
