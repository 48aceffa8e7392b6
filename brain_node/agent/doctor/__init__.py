"""What may be wrong with this machine, its settings and its way to the coordinator: one finding per thing looked at."""
