"""From file, environment and flags to settings: flag over environment over file over default.

An empty variable is an unset one. Every value is known with its source.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from brain_coord.config.build import settings_of
from brain_coord.config.faults import ConfigError, Where, faults_of
from brain_coord.config.file import CLUSTER_SECRET, CLUSTER_URL, DATABASE_URL, FILE_NAME, read_table
from brain_coord.config.tables import Config
from brain_coord.settings import Settings
from brain_node.contract.environment import strangers

PREFIX: Final = "BRAIN_COORD_"
COMMUNITY: Final = "BRAIN_COMMUNITY_FIRST"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be used.

    Attributes:
        settings: what to run with.
        config: the tables.
        file: that was read, `None` when there was none.
        sources: where each value that is not a default came from.
        warnings: what is allowed and not wise, one line each.
    """

    settings: Settings
    config: Config
    file: Path | None
    sources: Mapping[Where, str]
    warnings: tuple[str, ...]

    def shown(self) -> dict[str, Any]:
        """Every value with its source; files that hold secrets are named, their content is not."""
        tables: dict[str, Any] = {}
        for where, value in _leaves(self.config.model_dump(mode="json", by_alias=True)):
            table: Any = tables
            for part in where[:-1]:
                table = table.setdefault(str(part), {})
            table[str(where[-1])] = {"value": value, "source": self._source(where)}
        for name in ("cloud", "external"):
            tables[name] = [upstream.model_dump(mode="json") for upstream in getattr(self.config, name)]
        return tables

    def _source(self, where: Where) -> str:
        return self.sources.get(where, "default")


def _leaves(value: Any, where: Where = ()) -> Iterator[tuple[Where, Any]]:
    for name, each in value.items():
        if where == () and name in ("cloud", "external"):
            continue
        if isinstance(each, dict):
            yield from _leaves(each, (*where, name))
        else:
            yield (*where, name), each


def load(
    data_dir: Path,
    file: Path | None = None,
    *,
    flags: Mapping[Where, tuple[str, Any]] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Read and check a configuration.

    Args:
        data_dir: the coordinator's folder; its `config.toml` is read when no file is named.
        file: the file; one that is named must be there.
        flags: values of the command line by where they would stand, each with the flag's name.
        environ: the process environment.

    Raises:
        ConfigError: with every fault that was found.
    """
    environ = os.environ if environ is None else environ
    path = file or data_dir / FILE_NAME
    content = read_table(path, needed=file is not None)
    sources: dict[Where, str] = {where: f"file {path}" for where, _ in _leaves(content or {})}
    merged: dict[str, Any] = _copied(content or {})
    variables = {where: (f"environment {name}", environ[name]) for name, where in _variables() if environ.get(name)}
    for where, (source, value) in {**variables, **(flags or {})}.items():
        table: Any = merged
        for part in where[:-1]:
            table = table.setdefault(part, {}) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table[where[-1]] = value
            sources[where] = source
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(faults_of(error, Config, lambda where: _source_of(where, sources, path))) from None
    settings, warnings = settings_of(
        config,
        data_dir,
        path.parent,
        environ.get(DATABASE_URL) or None,
        environ,
        lambda where: _source_of(where, sources, path),
    )
    return Loaded(
        settings, config, path if content is not None else None, sources, (*warnings, *stray_variables(environ))
    )


def _source_of(where: Where, sources: Mapping[Where, str], path: Path) -> str:
    """The source of a value, or of what is missing: the file, which is where it would be added."""
    known = (sources[where[:size]] for size in range(len(where), 0, -1) if where[:size] in sources)
    return next(known, f"file {path}")


def _copied(value: Any) -> Any:
    return {name: _copied(each) for name, each in value.items()} if isinstance(value, dict) else value


def _variables(model: type[BaseModel] = Config, where: Where = ()) -> Iterator[tuple[str, Where]]:
    """Environment variables and what they set: `BRAIN_COORD_` with table and key. Lists of upstreams have none."""
    for name, field in model.model_fields.items():
        shown = field.alias or name
        inner = field.annotation
        if where == () and shown in ("cloud", "external"):
            continue
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _variables(inner, (*where, shown))
        else:
            yield PREFIX + "_".join(str(part) for part in (*where, shown)).upper(), (*where, shown)
    if where == ():
        yield COMMUNITY, ("routing", "community_first")


def variables() -> dict[str, Where]:
    """Every environment variable with what it sets."""
    return dict(_variables())


_OTHERS: Final = {"BRAIN_COORD_DATA_DIR", "BRAIN_COORD_CONFIG", DATABASE_URL, CLUSTER_URL, CLUSTER_SECRET}


def stray_variables(environ: Mapping[str, str]) -> list[str]:
    """A line for each variable that begins as the coordinator's own and sets nothing."""
    return strangers(environ, PREFIX, _OTHERS | variables().keys())
