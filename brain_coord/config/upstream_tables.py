"""The tables of the configuration file that name upstreams: vLLM servers of one's own, and services of others."""

from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from brain_coord.classes.upstream import Auth
from brain_coord.config.values import Count, Price, Share, Table, Texts
from brain_coord.gateway.dialects import DIALECTS

_ALL_ROUTES: Final = tuple(DIALECTS)


class ModelEntry(Table):
    """One model of an upstream, where its name or its price differs."""

    served: str | None = None
    prompt_usd_per_1m: Price | None = None
    completion_usd_per_1m: Price | None = None
    quality: Share | None = None


def _models(value: Any) -> Any:
    """A list of names, or a table from our name to its name or to a table."""
    if isinstance(value, list):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("must be a list of model names, or a table from our names to its names")
        if len(set(value)) < len(value):
            raise ValueError("names a model twice")
        return {name: {} for name in value}
    if isinstance(value, dict):
        return {name: {"served": entry} if isinstance(entry, str) else entry for name, entry in value.items()}
    raise ValueError("must be a list of model names, or a table from our names to its names")


class UpstreamTable(Table):
    """`[[cloud]]` and `[[external]]`: one upstream."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="how it is called in answers, receipts and logs"
    )
    url: str = Field(description="address without a key, as OpenAI clients take it; a bare host gets /v1")
    api_key_file: Path | None = Field(None, description="file that holds the API key")
    api_key_env: str | None = Field(None, description="environment variable that holds the API key")
    auth: Auth = Field(
        "bearer", description="how the key is sent: `bearer`, or `x-api-key` as Anthropic's API wants it"
    )
    models: Annotated[dict[str, ModelEntry], BeforeValidator(_models), Field(min_length=1, max_length=1000)] = Field(
        description="names of its models, or a table from our names to its names"
    )
    prompt_usd_per_1m: Price | None = Field(None, description="USD for a million prompt tokens; unset is unknown")
    completion_usd_per_1m: Price | None = Field(None, description="USD for a million answer tokens; unset is unknown")
    quality: Share | None = Field(None, description="quality tier, 0 to 1; unset is unknown")
    routes: Texts = Field(_ALL_ROUTES, description="API routes that it serves")
    slots: Count = Field(64, description="most requests on it at a time")
    region: str | None = Field(None, max_length=64, description="where it stands, as requests name regions")
    probe_s: float = Field(30.0, ge=0, le=86_400, description="how often it is looked at while idle; 0 for never")
    ca_file: Path | None = Field(None, description="private CA of its certificate (PEM)")

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            named = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            named = False
        if not named:
            raise ValueError("must be an http:// or https:// address")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("must be an address alone; a key belongs into api_key_file or api_key_env")
        return value.rstrip("/") + ("/v1" if parts.path in ("", "/") else "")

    @field_validator("routes")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or any(route not in DIALECTS for route in value):
            raise ValueError(f"must hold some of {', '.join(DIALECTS)}")
        return value

    @model_validator(mode="after")
    def _one_key(self) -> "UpstreamTable":
        if self.api_key_file is not None and self.api_key_env is not None:
            raise ValueError("api_key_file and api_key_env are both set; one is enough")
        return self
