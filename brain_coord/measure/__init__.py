"""Everything timed on the coordinator's own clock."""
