"""What the machine has, as frozen records in bytes."""
