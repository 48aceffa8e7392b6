"""The OpenAI API: validation, attempts, streams, errors."""
