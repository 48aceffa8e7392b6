"""The agent's settings: flag over environment over file over default, each value knowing where it came from.

An empty value is an unset one. Nothing is read from the working directory; secrets never have a flag, since a command
line shows in the process list.
"""

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import platformdirs

from brain_node.contract.environment import strangers
from brain_node.contract.limits import ID_CHARS, MAX_MODELS, MAX_SLOTS, TOKEN_CHARS
from brain_node.contract.secret_file import read_private
from brain_node.engine.environments import ENGINES_DIR_VARIABLE, TORCH_INDEX_VARIABLE
from brain_node.exit_codes import CONFIG, USAGE

EngineKind = Literal["vllm", "attach", "mock"]
ENGINE_KINDS: Final = ("vllm", "attach", "mock")
FILE_NAME: Final = "config.toml"
KEY_NAME: Final = "node.key"
"""The node's identity in its data folder; there since the first join."""


class SettingsError(Exception):
    """A setting cannot be used: which one, from where, why, and what to do."""

    code = "bad_setting"

    def __init__(self, message: str, next_step: str = "", exit_code: int = CONFIG) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.exit_code = exit_code


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return value.strip()


def _region(value: Any) -> str:
    text = _text(value)
    if len(text) > ID_CHARS or not text.isprintable():
        raise ValueError(f"at most {ID_CHARS} printable characters are expected")
    return text


def _path(value: Any) -> Path:
    return value if isinstance(value, Path) else _expanded(Path(_text(value)))


def _expanded(path: Path) -> Path:
    try:
        str(path).encode()
        return path.expanduser()
    except UnicodeEncodeError:
        raise ValueError(f"{str(path)!a} is no UTF-8 text") from None
    except RuntimeError:  # `~` without a home, or `~name` of nobody
        raise ValueError(f"{path} begins with the home folder of nobody") from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError("a number is expected")
    try:
        number = float(value)
    except ValueError:
        raise ValueError("a number is expected") from None
    if not 0 <= number < 1e9:
        raise ValueError("a number from 0 upward is expected")
    return number


def _slots(value: Any) -> int:
    number = _number(value)
    if number != int(number) or not 1 <= number <= MAX_SLOTS:
        raise ValueError(f"a whole number from 1 to {MAX_SLOTS} is expected")
    return int(number)


def _tokens(value: Any) -> int:
    number = _number(value)
    if number != int(number) or number < 1:
        raise ValueError("a whole number of tokens is expected")
    return int(number)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return known[_text(value).lower()]
    except KeyError:
        raise ValueError("true or false is expected") from None


def _texts(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a list of texts is expected")
    return tuple(part.strip() for part in parts if part.strip())


def _serve(value: Any) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for entry in _texts(value):
        model, separator, name = entry.partition("=")
        if not separator or not model or not name:
            raise ValueError("entries of the form ID=SERVED_NAME are expected")
        if model in dict(pairs):
            raise ValueError(f"one SERVED_NAME for each ID is expected, and {model} has two")
        pairs.append((model, name))
    if len(pairs) > MAX_MODELS:
        raise ValueError(f"at most {MAX_MODELS} models are expected")
    return tuple(pairs)


def _one_word(value: Any) -> str:
    text = _text(value)
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ValueError("one line without blanks, of ASCII characters, is expected")
    return text


def _join_token(value: Any) -> str:
    text = _one_word(value)
    if len(text) > TOKEN_CHARS:
        raise ValueError(f"at most {TOKEN_CHARS} characters are expected")
    return text


def _choice(*choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if (text := _text(value)) not in choices:
            raise ValueError(f"one of {', '.join(choices)} is expected")
        return text

    return parse


@dataclass(frozen=True, slots=True)
class Field:
    """One setting: its name in the file, its environment variable, its flag, and what it means."""

    name: str
    variable: str
    flag: str | None
    parse: Callable[[Any], Any]
    default: Any
    help: str
    secret: bool = False


FIELDS: Final = tuple(
    Field(*row)
    for row in (
        ("url", "BRAIN_NODE_URL", "URL", _text, None, "address of the coordinator"),
        (
            "token",
            "BRAIN_NODE_TOKEN",
            None,
            _join_token,
            None,
            "join token; needed once, if the coordinator asks",
            True,
        ),
        ("token_file", "BRAIN_NODE_TOKEN_FILE", "--token-file", _path, None, "file that holds the join token"),
        ("models", "BRAIN_NODE_MODELS", "--model", _texts, (), "models to serve, or `auto`"),
        ("catalog", "BRAIN_NODE_CATALOG", "--catalog", _path, None, "allowlist that replaces the shipped one"),
        ("context", "BRAIN_NODE_CONTEXT", "--context", _tokens, None, "most tokens a request; less needs less memory"),
        ("slots", "BRAIN_NODE_SLOTS", "--slots", _slots, None, "most jobs at a time; default: what the engine bears"),
        ("region", "BRAIN_NODE_REGION", "--region", _region, None, "where this machine is, as requests name regions"),
        ("ask_usd_per_1m", "BRAIN_NODE_ASK_USD_PER_1M", "--ask", _number, None, "asked price, USD per million tokens"),
        ("engine", "BRAIN_NODE_ENGINE", "--engine", _choice(*ENGINE_KINDS), "vllm", "vllm, attach or mock"),
        ("engine_url", "BRAIN_NODE_ENGINE_URL", "--engine-url", _text, None, "attach: address of the running server"),
        ("engine_key", "BRAIN_NODE_ENGINE_KEY", None, _one_word, None, "attach: the server's API key", True),
        ("serve", "BRAIN_NODE_SERVE", "--serve", _serve, (), "attach: ID=SERVED_NAME for each model"),
        ("ca_file", "BRAIN_NODE_CA_FILE", "--ca-file", _path, None, "private CA of the coordinator, PEM"),
        (
            "drain_timeout_s",
            "BRAIN_NODE_DRAIN_TIMEOUT",
            "--drain-timeout",
            _number,
            60.0,
            "seconds for streams at stop",
        ),
        ("log_json", "BRAIN_NODE_LOG_JSON", "--json", _flag, False, "log lines as JSON"),
        ("log_level", "BRAIN_NODE_LOG_LEVEL", "--log-level", _choice("debug", "info", "warning"), "info", "log detail"),
        ("hf_token", "HF_TOKEN", None, _text, None, "token for gated models of the hub", True),
    )
)
_BY_NAME: Final = {each.name: each for each in FIELDS}

PREFIX: Final = "BRAIN_NODE_"
DATA_DIR_VARIABLE: Final = f"{PREFIX}DATA_DIR"
VARIABLES: Final = frozenset(
    (*(each.variable for each in FIELDS), DATA_DIR_VARIABLE, ENGINES_DIR_VARIABLE, TORCH_INDEX_VARIABLE)
)
"""Every variable that the agent reads of those that are its own."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force. `sources` says for each name where its value came from."""

    data_dir: Path
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    models: tuple[str, ...] = ()
    catalog: Path | None = None
    context: int | None = None
    slots: int | None = None
    region: str | None = None
    ask_usd_per_1m: float | None = None
    engine: EngineKind = "vllm"
    engine_url: str | None = None
    engine_key: str | None = field(default=None, repr=False)
    serve: tuple[tuple[str, str], ...] = ()
    ca_file: Path | None = None
    drain_timeout_s: float = 60.0
    log_json: bool = False
    log_level: str = "info"
    hf_token: str | None = field(default=None, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def secrets(self) -> tuple[str | None, ...]:
        """What must never be shown or logged."""
        return tuple(getattr(self, each.name) for each in FIELDS if each.secret)

    def shown(self) -> dict[str, dict[str, Any]]:
        """Every setting with its source, for `status --json`; secrets only as set or not."""
        rows: dict[str, dict[str, Any]] = {
            "data_dir": {"value": str(self.data_dir), "source": self.sources["data_dir"]}
        }
        for each in FIELDS:
            value = getattr(self, each.name)
            if each.secret:
                value = "set" if value else None
            elif isinstance(value, Path):
                value = str(value)
            elif each.name == "serve":
                value = [f"{model}={name}" for model, name in value]
            rows[each.name] = {"value": value, "source": self.sources.get(each.name, "default")}
        return rows


def default_data_dir() -> Path:
    """The user's data folder for the agent."""
    return platformdirs.user_data_path("brain-node")


def data_dir_of(flag: Path | None, environ: Mapping[str, str]) -> tuple[Path, str]:
    """The data folder in force, and where it came from.

    Raises:
        SettingsError: it begins with a home folder that there is not.
    """
    for path, source, exit_code in (
        (flag, "flag --data-dir", USAGE),
        (Path(environ.get(DATA_DIR_VARIABLE, "").strip()), f"environment {DATA_DIR_VARIABLE}", CONFIG),
    ):
        if path is None or str(path) in ("", "."):
            continue
        try:
            return _expanded(path).absolute(), source
        except ValueError as error:
            raise SettingsError(f"{source}: {error}", "name the folder by its whole path", exit_code) from None
    return default_data_dir(), "default"


def stray_variables(environ: Mapping[str, str]) -> list[str]:
    """A line for each variable that begins as the agent's own and sets nothing."""
    return strangers(environ, PREFIX, VARIABLES)


def _unset(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, list | tuple) and not value)
    )


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else error
        step = "correct the file, or move it away"
        if isinstance(error, PermissionError):
            step = "run it as the user that the agent runs as, or with sudo"
        raise SettingsError(f"cannot read {path}: {reason}", step) from None
    for name in content:
        if name not in _BY_NAME:
            near = difflib.get_close_matches(name, _BY_NAME, 1)
            hint = f"did you mean `{near[0]}`?" if near else "remove it"
            raise SettingsError(f"{path}: there is no setting `{name}`", hint)
    return content


def resolve(flags: Mapping[str, Any], environ: Mapping[str, str], data_dir: Path | None = None) -> Settings:
    """The settings in force.

    Args:
        flags: values given on the command line, by setting name; unset ones may be absent.
        environ: the process environment.
        data_dir: the flag `--data-dir`.

    Raises:
        SettingsError: a value, the file or the token file cannot be used, or a flag would have no effect.
    """
    folder, folder_source = data_dir_of(data_dir, environ)
    path = folder / FILE_NAME
    content = _read_file(path)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {"data_dir": folder_source}
    for each in FIELDS:
        for raw, source, exit_code in (
            (flags.get(each.name), f"flag {each.flag}", USAGE),
            (environ.get(each.variable), f"environment {each.variable}", CONFIG),
            (content.get(each.name), f"file {path}", CONFIG),
        ):
            if _unset(raw):
                continue
            try:
                values[each.name], sources[each.name] = each.parse(raw), source
            except (TypeError, ValueError) as error:
                raise SettingsError(f"{source}: `{each.name}` is not usable: {error}", each.help, exit_code) from None
            break
        else:
            values[each.name], sources[each.name] = each.default, "default"
    idle = list(_without_effect(values, sources))
    warnings = (*_token(values, sources, content, folder), *idle, *stray_variables(environ))
    return Settings(data_dir=folder, sources=sources, warnings=warnings, **values)


_ONLY_FOR: Final[Mapping[str, EngineKind]] = {
    "engine_url": "attach",
    "engine_key": "attach",
    "serve": "attach",
    "context": "vllm",
}
"""Settings that mean something to one engine alone."""


def _without_effect(values: dict[str, Any], sources: dict[str, str]) -> Iterator[str]:
    """Take out what changes nothing beside the other values, with a line for each.

    A flag is an error: whoever typed it just now meant something else than what would happen.
    """
    engine = values["engine"]
    for name, only in _ONLY_FOR.items():
        if not _unset(values[name]) and engine != only:
            step = f"add --engine {only}, or leave it away"
            yield _idle(sources[name], f"the engine is {engine}, and `{name}` is for {only}", step)
            values[name], sources[name] = _BY_NAME[name].default, "default"
    served = {model for model, _ in values["serve"]}
    if served and (others := [model for model in values["models"] if model not in served]):
        step = f"add --serve {others[0]}=NAME_AT_THE_SERVER, or leave it away"
        yield _idle(sources["models"], f"{others[0]} is not among the models that `serve` names", step)
        values["models"] = tuple(model for model in values["models"] if model in served)


def _idle(source: str, why: str, next_step: str) -> str:
    if _rank(source) == 0:
        raise SettingsError(f"{source} would have no effect: {why}", next_step, USAGE)
    return f"{source} has no effect: {why}"


_RANK: Final = {"flag": 0, "environment": 1, "file": 2, "default": 3}


def _token(values: dict[str, Any], sources: dict[str, str], content: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """Settle the token between its two settings: the one from the stronger source wins, and no token is none.

    A token is needed once. A node that has joined must not stay down because the file is gone since.
    """
    path, warnings = folder / FILE_NAME, []
    if any(content.get(each.name) for each in FIELDS if each.secret) and read_private(path)[1]:
        warnings.append(f"{path} holds a secret and others could read it: permissions tightened to 0600")
    file: Path | None = values["token_file"]
    if file is None:
        return tuple(warnings)
    if values["token"] and _rank(sources["token"]) < _rank(sources["token_file"]):
        return tuple(warnings)
    try:
        text, loose = read_private(file)
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError) and (folder / KEY_NAME).exists():
            warnings.append(f"the token file {file} is gone: a coordinator that knows this node asks for no token")
            return tuple(warnings)
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"cannot read the token file {file}: {reason}", "check the path") from None
    if loose:
        warnings.append(f"{file} could be read by others: permissions tightened to 0600")
    try:
        token = _join_token(text)
    except ValueError as error:
        raise SettingsError(
            f"the token file {file} holds no join token: {error}", "name the file that it is in"
        ) from None
    if token:
        values["token"], sources["token"] = token, f"{sources['token_file']} ({file})"
    return tuple(warnings)


def _rank(source: str) -> int:
    return _RANK[source.partition(" ")[0]]
