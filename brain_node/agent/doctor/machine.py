"""Looking at the machine: cards, engine, plan, disk, limits, what an earlier agent left."""

import asyncio
import os
import random
import resource
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from brain_node.agent.doctor.finding import Finding, fail, ok, warn
from brain_node.agent.hardware import Hardware
from brain_node.agent.request import request_of
from brain_node.contract.catalog import Catalog
from brain_node.engine.environments import EngineEnv, Flavour, engines_dir, find_environment
from brain_node.engine.orphans import find_orphans
from brain_node.engine.ports import choose_port
from brain_node.exit_codes import TEMPORARY, UNAVAILABLE
from brain_node.gpu.machine import machine_of
from brain_node.plan.planner import plan
from brain_node.plan.records import EngineDevice
from brain_node.plan.sizes import gib
from brain_node.settings import Settings, SettingsError

GIB: Final = 1 << 30
LITTLE_DISK_BYTES: Final = 20 * GIB
"""A 7B model in 16 bits and an engine environment need about this."""
LITTLE_SHM_BYTES: Final = GIB
FEW_FILES: Final = 4096


async def driver(hardware: Hardware, env: EngineEnv | None, *, wanted: bool) -> list[Finding]:
    """The driver and its cards."""
    await hardware.sample()
    inventory, problems = hardware.inventory, hardware.problems
    needed = wanted and (env is None or env.flavour is Flavour.CUDA)
    findings = [
        fail("driver", problem.message, problem.next_step, UNAVAILABLE)
        if needed and not inventory.usable
        else warn("driver", problem.message, problem.next_step if needed else "nothing, if no card is meant to be used")
        for problem in problems
    ]
    if inventory.usable:
        names = ", ".join(f"GPU {gpu.index} {gpu.name} ({gib(gpu.free_bytes)} free)" for gpu in inventory.usable)
        findings.append(ok("driver", f"driver {inventory.driver}, CUDA {inventory.cuda}: {names}"))
    return findings


def engine(settings: Settings) -> tuple[EngineEnv | None, list[Finding]]:
    """The engine environment that would be used."""
    folder = engines_dir(settings.data_dir)
    env = find_environment(folder) or find_environment(folder, Flavour.CPU)
    if settings.engine != "vllm":
        return env, [ok("engine", f"--engine {settings.engine} needs none")]
    if env is None:
        return None, [fail("engine", f"no engine is installed in {folder}", "brain-node engine install", UNAVAILABLE)]
    return env, [ok("engine", f"vLLM {env.version} for {env.flavour.value} in {env.root}")]


def models(settings: Settings, catalog: Catalog, hardware: Hardware, env: EngineEnv | None) -> list[Finding]:
    """What would be served."""
    if settings.engine != "vllm" or env is None:
        return []
    device: EngineDevice = "cpu" if env.flavour is Flavour.CPU else "cuda"
    try:
        request = replace(request_of(settings), device=device)
    except SettingsError as error:
        return [fail("models", error.message, error.next_step, error.exit_code)]
    made = plan(catalog, machine_of(hardware.inventory), request)
    findings = [
        warn("models", refusal.message, refusal.next_step)
        if made.placements
        else fail("models", refusal.message, refusal.next_step, UNAVAILABLE)
        for refusal in made.refusals
    ]
    names = ", ".join(f"{each.model.id} ({each.max_model_len} tokens)" for each in made.placements)
    return [*findings, *([ok("models", f"would serve {names}")] if names else [])]


def disk(settings: Settings) -> list[Finding]:
    """Room for weights, engines and logs, at the real places."""
    cache = _weights_cache(os.environ)
    findings = []
    for name, place in (("data folder", settings.data_dir), ("weights cache", cache)):
        there = next(each for each in (place, *place.parents) if each.exists())
        free = shutil.disk_usage(there).free
        message = f"{name} {place}: {gib(free)} free"
        little = free < LITTLE_DISK_BYTES and settings.engine == "vllm"
        findings.append(warn("disk", message, "make room, or choose small models") if little else ok("disk", message))
    return findings


def _weights_cache(environ: Mapping[str, str]) -> Path:
    """Where the hub's library keeps models, by its own variables."""
    if named := environ.get("HF_HUB_CACHE"):
        return Path(named)
    home = environ.get("HF_HOME") or f"{environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(os.path.expanduser(home)) / "hub"  # noqa: PTH111 - never fails, for a user without a home either


def limits() -> list[Finding]:
    """Shared memory and open files."""
    findings = []
    try:
        shared = shutil.disk_usage("/dev/shm").total  # noqa: S108 — the kernel's own place
    except OSError:
        shared = 0
    if shared < LITTLE_SHM_BYTES:
        step = "engines over several cards need it: in a container, start it with --ipc=host or --shm-size"
        findings.append(warn("limits", f"shared memory is small ({gib(shared)})", step))
    files = max(resource.getrlimit(resource.RLIMIT_NOFILE))  # an agent raises its own to what it may have
    if files < FEW_FILES:
        findings.append(warn("limits", f"only {files} open files are allowed", "raise it (ulimit -Hn, LimitNOFILE=)"))
    return findings or [ok("limits", f"shared memory {gib(shared)}, {files} open files")]


def ports() -> list[Finding]:
    """Whether engines can listen on loopback."""
    try:
        port = choose_port(set(), random.random)
    except OSError as error:
        return [fail("ports", f"no port of the loopback address is free: {error}", "end what holds them", TEMPORARY)]
    return [ok("ports", f"engines can listen on 127.0.0.1 (for example on {port})")]


async def orphans(settings: Settings) -> list[Finding]:
    """Engines that a killed agent left running."""
    found = await asyncio.to_thread(find_orphans, settings.data_dir / "run")
    if not found:
        return [ok("orphans", "no engine of an earlier agent is left")]
    step = "the next `brain-node join` ends them by itself"
    return [warn("orphans", f"{each.record.model_id} still runs (processes {each.pids})", step) for each in found]
