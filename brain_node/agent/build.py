"""Putting an agent together from its settings, with every fault of configuration found before anything starts."""

from pathlib import Path

from brain_node.agent.agent import Agent, Parts
from brain_node.agent.attach import AttachSource, EngineUrlError
from brain_node.agent.hardware import Hardware
from brain_node.agent.mock import MockSource
from brain_node.agent.request import request_of
from brain_node.agent.source import EngineSource
from brain_node.agent.vllm import VllmSource
from brain_node.agent.weights import weights_from_hub
from brain_node.contract.catalog import MOCK_MODEL_ID, Catalog, load_catalog
from brain_node.contract.identity import load_or_create_identity
from brain_node.engine.checkpoint import with_checkpoints
from brain_node.engine.environments import engines_dir
from brain_node.engine.surroundings import Surroundings
from brain_node.link.dial import Dialer
from brain_node.link.url import parse_coordinator
from brain_node.plan.records import AUTO
from brain_node.settings import KEY_NAME, Settings, SettingsError


def key_path(data_dir: Path) -> Path:
    """The node's key file."""
    return data_dir / KEY_NAME


def build_agent(settings: Settings) -> Agent:
    """The agent that the settings describe, not yet running.

    Raises:
        SettingsError, UrlError, CatalogError, UnknownModelError, IdentityError, LinkError: what is wrong with them.
    """
    if settings.url is None:
        raise SettingsError(
            "no coordinator is named", "brain-node join https://coordinator.example (or set BRAIN_NODE_URL)"
        )
    url = parse_coordinator(settings.url)
    hardware = Hardware()
    source = source_of(settings, with_checkpoints(load_catalog(settings.catalog)), hardware)
    dialer = Dialer(url, settings.ca_file)
    identity = load_or_create_identity(key_path(settings.data_dir))
    return Agent(Parts(settings, identity, dialer, source, hardware))


def source_of(settings: Settings, catalog: Catalog, hardware: Hardware) -> EngineSource:
    """What serves the models, by `--engine`.

    Raises:
        SettingsError, UnknownModelError: the engine's settings do not fit together.
    """
    if settings.engine == "mock":
        if others := [model for model in settings.models if model not in (MOCK_MODEL_ID, "auto")]:
            raise SettingsError(
                f"the mock engine serves {MOCK_MODEL_ID} only, not {others[0]}", "leave --model away, or --engine mock"
            )
        return MockSource(settings.slots)
    if settings.engine == "attach":
        return _attach(settings, catalog)
    return _vllm(settings, catalog, hardware)


def _vllm(settings: Settings, catalog: Catalog, hardware: Hardware) -> VllmSource:
    request = request_of(settings)
    for model in request.models:
        if model != AUTO:
            catalog.require(model)  # a misspelt name is told at once, not found missing later
    engines = engines_dir(settings.data_dir)
    weights = weights_from_hub(settings.data_dir, settings.hf_token)
    return VllmSource(catalog, request, engines, weights, hardware, Surroundings(settings.data_dir))


def _attach(settings: Settings, catalog: Catalog) -> AttachSource:
    serve = dict(settings.serve) or {model: model for model in settings.models}
    if settings.engine_url is None or not serve:
        raise SettingsError(
            "--engine attach needs the server's address and the models it serves",
            "--engine-url http://127.0.0.1:8000 --serve qwen/qwen2.5-7b-instruct=NAME_AT_THE_SERVER",
        )
    for model in serve:
        catalog.require(model)
    try:
        return AttachSource(settings.engine_url, serve, settings.engine_key, settings.slots)
    except EngineUrlError as error:
        raise SettingsError(str(error)) from None
