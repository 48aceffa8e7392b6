"""Run one engine: argv, process group, state machine, readiness, crash causes, orphans."""
