"""Text to tokens and back for one model: its chat template and tokenizer, and stops that may lie across tokens."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from brain_coord.browser.checkpoint import CheckpointError

_PARTIAL: Final = "\ufffd"


class SpeechError(Exception):
    """The conversation cannot be put into the model's words; the text says why."""


def _refuse(message: str) -> None:
    raise SpeechError(message)


class Speech:
    """One model's tokenizer and template.

    Raises:
        CheckpointError: one of the two is damaged, or the library for tokenizers is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise CheckpointError("tokenizers are not installed; pip install 'brain-node[browser]'") from None
        if not (folder / "tokenizer.json").exists():
            raise CheckpointError(f"{folder} has no tokenizer.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library has no type of its own for what is wrong with a file
            raise CheckpointError(f"{folder / 'tokenizer.json'} is no tokenizer: {error}") from None
        settings = _read(folder / "tokenizer_config.json")
        source = settings.get("chat_template")
        if (folder / "chat_template.jinja").exists():
            source = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        # Templates come with checkpoints and run here: nothing but text may come of them.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
        try:
            self._template = environment.from_string(source) if isinstance(source, str) else None
        except TemplateError as error:
            raise CheckpointError(f"the chat template in {folder} cannot be read: {error}") from None
        self._names = {name: settings.get(name) for name in ("bos_token", "eos_token")}
        ends = _read(folder / "generation_config.json").get("eos_token_id")
        if ends is None:
            ends = _read(folder / "config.json").get("eos_token_id")
        self.ends = frozenset([ends] if isinstance(ends, int) else ends or ())

    def prompt(self, messages: list[dict[str, Any]], options: dict[str, Any]) -> list[int]:
        """The tokens of a conversation, up to where the model is to speak.

        Raises:
            SpeechError: the template refuses it.
        """
        if self._template is None:
            raise SpeechError("this model has no chat template")
        given = {**self._names, **options, "messages": messages, "add_generation_prompt": True}
        try:
            text = self._template.render(given)
        except (TemplateError, TypeError) as error:
            raise SpeechError(f"the model's chat template refuses these messages: {error}") from None
        (encoded,) = self._tokenizer.encode_batch([text], add_special_tokens=False)  # `encode` would keep the GIL
        return list(encoded.ids)

    def text(self, tokens: Sequence[int]) -> str:
        """What tokens say."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None
    return data if isinstance(data, dict) else {}


@dataclass(slots=True)
class Voice:
    """The text of one answer as it grows: told once a character is whole, and held back while it may be a stop."""

    speech: Speech
    stops: tuple[str, ...] = ()
    tokens: list[int] = field(default_factory=list)
    told: int = 0
    stopped: bool = False

    def hear(self, token: int) -> str:
        """What can be told after one more token."""
        self.tokens.append(token)
        text = self.speech.text(self.tokens)
        for stop in self.stops:
            if (at := text.find(stop)) >= 0:
                self.stopped = True
                text = text[:at]
        if self.stopped:
            return self._tell(text, len(text))
        end = len(text) - 1 if text.endswith(_PARTIAL) else len(text)
        for stop in self.stops:
            for size in range(min(len(stop) - 1, len(text)), 0, -1):
                if text.endswith(stop[:size]):
                    end = min(end, len(text) - size)
                    break
        return self._tell(text, end)

    def finish(self) -> str:
        """What was held back and is no stop after all."""
        text = self.speech.text(self.tokens)
        return "" if self.stopped else self._tell(text, len(text))

    def _tell(self, text: str, end: int) -> str:
        said = text[self.told : end]
        self.told = max(self.told, end)
        return said
