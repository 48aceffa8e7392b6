"""All checks in their order, each finding told as soon as it is known."""

from collections.abc import AsyncIterator, Mapping

from brain_node.agent.build import key_path
from brain_node.agent.doctor import machine, network
from brain_node.agent.doctor.finding import Finding, fail, ok, warn
from brain_node.agent.hardware import Hardware
from brain_node.contract.catalog import CatalogError, load_catalog
from brain_node.contract.identity import IdentityError, load_identity
from brain_node.engine.checkpoint import with_checkpoints
from brain_node.exit_codes import CONFIG
from brain_node.local_api.client import NoAgentError, ask
from brain_node.settings import Settings


async def examine(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Look at everything that the agent depends on."""
    for text in settings.warnings:
        yield warn("settings", text, "")
    yield _identity(settings)
    agent, running = _agent(settings)
    env, found = machine.engine(settings)
    hardware = Hardware(environ)
    try:
        for finding in await machine.driver(hardware, env, wanted=settings.engine == "vllm"):
            yield finding
        for finding in found:
            yield finding
        try:
            catalog = with_checkpoints(load_catalog(settings.catalog))
        except CatalogError as error:
            yield fail("models", error.message, error.next_step, CONFIG)
        else:
            # A running agent's own engines hold the memory that a plan made now would miss.
            for finding in () if running else machine.models(settings, catalog, hardware, env):
                yield finding
    finally:
        hardware.close()
    for finding in (*machine.disk(settings), *machine.limits(), *machine.ports()):
        yield finding
    for finding in await machine.orphans(settings):
        yield finding
    for finding in await network.coordinator(settings, environ):
        yield finding
    yield agent


def _identity(settings: Settings) -> Finding:
    path = key_path(settings.data_dir)
    try:
        return ok("identity", f"{load_identity(path).node_id} ({path})")
    except FileNotFoundError:
        return ok("identity", f"none yet; the first join makes {path}")
    except IdentityError as error:
        return fail("identity", str(error), "restore it, or move it away", CONFIG)


def _agent(settings: Settings) -> tuple[Finding, bool]:
    """What the agent of this data folder says, and whether one runs."""
    try:
        state = ask(settings.data_dir, "/status")
    except NoAgentError:
        return ok("agent", "not running"), False
    except OSError as error:
        return warn("agent", f"it runs and does not answer: {error}", "brain-node logs"), True
    link = state["coordinator"]
    if link["state"] == "online":
        return ok("agent", f"running, linked to {link['url']}"), True
    fault = link["fault"] or {"message": f"the link is {link['state']}", "next_step": ""}
    return warn("agent", f"running, not linked: {fault['message']}", fault["next_step"] or "see above"), True
