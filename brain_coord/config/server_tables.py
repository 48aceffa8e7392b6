"""The tables of the configuration file that say where the coordinator stands: server, store, cluster, traces, log."""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from brain_coord.cluster.secret import LEAST_CHARS
from brain_coord.config.values import MIB, Seconds, Share, Table, Texts
from brain_coord.settings import DEFAULT_PORT
from brain_coord.store.store import StoreOptions

_STORE: Final = StoreOptions()


class Server(Table):
    """`[server]`: where the coordinator listens, and for whom."""

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 or :: for every network")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="port; 0 takes a free one")
    root_path: str = Field("", description="path prefix that a proxy in front keeps, such as /brain")
    tls_cert: Path | None = Field(None, description="certificate chain (PEM); with tls_key it serves https")
    tls_key: Path | None = Field(None, description="private key of tls_cert (PEM)")
    trusted_proxies: Texts = Field((), description="addresses or networks whose forwarded headers count")
    cors_origins: Texts = Field((), description="origins whose pages may call the API; `*` for every one")
    drain_s: float = Field(30.0, ge=0, le=86_400, description="how long streams may go on when it stops")

    @field_validator("root_path")
    @classmethod
    def _prefix(cls, value: str) -> str:
        value = value.rstrip("/")
        if value and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", value):
            raise ValueError("must be a path such as /brain")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            try:
                if each != "*":
                    ip_network(each)
            except ValueError:
                raise ValueError("must hold addresses or networks such as 10.0.0.0/8, or *") from None
        return value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise ValueError("must hold origins such as https://app.example.com, or *")
        return value

    @model_validator(mode="after")
    def _both(self) -> "Server":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together; only one of them is set")
        return self


class StoreTable(Table):
    """`[store]`: where receipts and keys are kept, and what happens while that fails."""

    url_file: Path | None = Field(None, description="file with a postgresql:// URL; without one SQLite is used")
    on_failure: Literal["spool", "refuse"] = Field(
        _STORE.on_store_failure, description="while the store is away: keep receipts on disk, or refuse requests"
    )
    timeout_s: Seconds = Field(_STORE.timeout_s, description="after this the store counts as away")
    receipts_days: float = Field(
        _STORE.receipts_days, ge=0, le=36_500, description="for how many days receipts are kept; 0 for ever"
    )
    spool_mib: int = Field(_STORE.spool_limit_bytes // MIB, ge=1, le=1_000_000, description="most that is kept on disk")


class ClusterTable(Table):
    """`[cluster]`: several coordinators as one; see "Several coordinators" in the README."""

    url_file: Path | None = Field(
        None, description="file with the redis:// URL that all coordinators share; without one it runs alone"
    )
    secret_file: Path | None = Field(
        None, description=f"file with the secret that all coordinators share, at least {LEAST_CHARS} characters"
    )
    name: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$",
        description="this coordinator's own name; default: that of its receipt chain",
    )
    address: str | None = Field(None, description="where the others reach this one, such as http://10.0.0.2:8470")
    ca_file: Path | None = Field(None, description="private CA of the others' certificates (PEM)")
    ttl_s: float = Field(6.0, ge=1, le=300, description="a coordinator that was not heard for so long counts as gone")
    leave_s: float = Field(
        5.0, ge=0, le=300, description="how long it answers after /readyz says that it leaves; for the load balancer"
    )

    @field_validator("address")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "")
        if value is not None and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username):
            raise ValueError("must be an http:// or https:// address")
        return None if value is None else value.rstrip("/")


class Tracing(Table):
    """`[tracing]`: requests as OpenTelemetry traces (extra `otel`)."""

    otlp_url: str | None = Field(None, description="OTLP endpoint over HTTP, to which traces are sent; none by default")
    share: Share = Field(1.0, description="share of requests that are traced")

    @field_validator("otlp_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/\s]+/\S*", value):
            raise ValueError("must be an address such as http://127.0.0.1:4318/v1/traces")
        return value


class Log(Table):
    """`[log]`."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is written")
    as_json: bool | None = Field(None, alias="json", description="JSON lines; default: JSON off a terminal")
