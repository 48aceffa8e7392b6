"""The agent: identity, hardware, engines, link and slots put together, and stopped in order."""
