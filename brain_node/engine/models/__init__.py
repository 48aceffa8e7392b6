"""Small real models that need no model hub."""
