"""The agent with its local door: what `brain-node join` runs."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

import structlog

from brain_node.agent.agent import Agent
from brain_node.agent.metrics import metrics_of
from brain_node.agent.redact import redactor
from brain_node.agent.view import status_of
from brain_node.local_api.server import LocalApi

log = structlog.get_logger(__name__)


class AgentControl:
    """What the local API may ask of an agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        # What a coordinator says is shown to people; it could say back what it was told.
        self._clean = redactor(agent.settings.secrets)

    def status(self) -> dict[str, Any]:
        """The whole state."""
        return cast("dict[str, Any]", self._clean(status_of(self._agent)))

    def why(self) -> dict[str, Any]:
        """What the coordinator said in the last hour, and what it thinks of the offer."""
        status = self._agent.link_status
        refused = [{"model": model, "reason": reason} for model, reason in status.refused]
        said = self._agent.notices.summary(time.monotonic())
        return cast("dict[str, Any]", self._clean({**said, "link": status.state, "refused_models": refused}))

    def metrics(self) -> str:
        """The state as Prometheus text."""
        return metrics_of(self.status())

    def set_draining(self, draining: bool) -> bool:
        """Take no new jobs, or take them again; tells whether that is remembered over restarts."""
        return self._agent.set_draining(draining)

    def stop(self, reason: str) -> None:
        """Begin a clean stop."""
        self._agent.stop(reason)


Show = Callable[[AgentControl], Coroutine[Any, Any, None]]
"""Shows a running agent until cancelled."""


async def run_agent(agent: Agent, show: Show | None = None) -> int:
    """Run an agent and its local API; the exit code."""
    if agent.settings.token and not agent.dialer.url.secure and not agent.dialer.url.loopback:
        log.warning("token_unencrypted", note="the join token travels without TLS: use https")
    log.info(
        "starting",
        node=agent.identity.node_id,
        coordinator=agent.dialer.url.base,
        engine=agent.source.kind,
        data_dir=str(agent.settings.data_dir),
    )
    control = AgentControl(agent)
    api = LocalApi(agent.settings.data_dir, control)
    await api.start()
    showing = asyncio.create_task(show(control)) if show is not None else None
    try:
        return await agent.run()
    finally:
        if showing is not None:
            showing.cancel()
            await asyncio.wait([showing])
        await api.stop()
