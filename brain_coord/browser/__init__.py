"""The coordinator's side of browser tabs that lend their GPU: sessions, work on them, and how every result is checked."""
