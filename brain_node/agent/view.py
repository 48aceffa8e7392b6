"""The agent's state as one JSON-ready object: what `status`, the live panel and the local API show."""

import os
import time
from typing import Any

from brain_node import __version__
from brain_node.agent.agent import Agent
from brain_node.agent.logs import log_path
from brain_node.link.client import LinkStatus
from brain_node.link.faults import Fault


def status_of(agent: Agent) -> dict[str, Any]:
    """Everything worth knowing about a running agent; no secrets."""
    now = time.monotonic()
    offer, desk = agent.offer(), agent.desk
    return {
        "running": True,
        "node_id": agent.identity.node_id,
        "version": __version__,
        "pid": os.getpid(),
        "started_at": agent.started_at,
        "uptime_s": round(now - agent.started, 1),
        "coordinator": {"url": agent.dialer.url.base, **_link(agent.link_status, now)},
        "draining": desk.draining,
        "draining_for": sorted(desk.closed_by),
        "engine": {"kind": agent.source.kind, "version": agent.source.version, "uses_cards": agent.source.uses_cards},
        "engines": agent.source.details(),
        "offer": offer.model_dump(mode="json"),
        "jobs": {
            "active": desk.active,
            "slots": desk.slots,
            "finished": dict(desk.outcomes),
            "refused": dict(desk.refusals),
        },
        "slot_connections": _slots(agent),
        "gpus": [claim.model_dump(mode="json") for claim in agent.hardware.telemetry()],
        "problems": agent.hardware.problems_json(),
        "settings": agent.settings.shown(),
        "log": str(log_path(agent.settings.data_dir)),
    }


def _fault(fault: Fault | None) -> dict[str, Any] | None:
    return {"code": fault.code, "message": fault.message, "next_step": fault.next_step} if fault else None


def _link(status: LinkStatus, now: float) -> dict[str, Any]:
    retry_in_s = None if status.next_attempt_at is None else max(0.0, round(status.next_attempt_at - now, 1))
    return {
        "state": status.state,
        "for_s": round(now - status.since, 1),
        "session": status.session,
        "accepted": list(status.accepted),
        "refused": [{"model": model, "reason": reason} for model, reason in status.refused],
        "fault": _fault(status.fault),
        "retry_in_s": retry_in_s,
        "attempts": status.attempts,
        "sessions": status.sessions,
    }


def _slots(agent: Agent) -> dict[str, Any]:
    slots = agent.link.slots
    if slots is None:
        return {"open": 0, "active": 0, "fault": None}
    return {"open": slots.pool.open, "active": len(slots.pool.active), "fault": _fault(slots.fault)}
