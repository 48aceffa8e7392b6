"""Builds the known-text model: a checkpoint that a real engine serves and whose every answer is known beforehand.

It is a small Llama with attention and MLP that add nothing, one-hot embeddings, and an output layer that sends each token to
its successor. So the answer depends on the last token of the prompt alone: the sentence from its first word, one token
a word, then the end token, at any temperature. With `ignore_eos` it goes round and round. Nothing but the standard
library is needed to write it.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

SENTENCE = (
    "Every answer of this model is known before it speaks, so each word that arrives late, twice, or never "
    "shows a fault between engine and client: count them over coffee at the café to be sure."
)

_SPACE = "\u2581"  # stands for a space inside a token, as SentencePiece writes it
_SPECIAL = ("<|unk|>", "<|end|>", "<|system|>", "<|developer|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|answer|>")
_END_ID = 1
_ANSWER_ID = 7
_HIDDEN = 128
_VOCAB = 128
_LAYERS = 2
_CONTEXT = 8192
_ONE, _TEN = b"\x80\x3f", b"\x20\x41"  # bfloat16, little endian
_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + (message['content'] or '') }}{% endfor %}"
    "{% if add_generation_prompt %}<|answer|>{% endif %}"
)


@dataclass(frozen=True)
class KnownTextModel:
    """A known-text checkpoint on disk and what it says."""

    path: Path
    sentence: str
    context: int = _CONTEXT

    @property
    def words(self) -> list[str]:
        """The sentence's tokens: one a word."""
        return self.sentence.split(" ")

    @property
    def answer_tokens(self) -> int:
        """Completion tokens of a whole answer, its end token counted as engines count it."""
        return len(self.words) + 1

    def text(self, tokens: int) -> str:
        """What `tokens` tokens say when the end token is ignored (it counts, and shows nothing)."""
        said, left = "", tokens
        while left > 0:
            said += " ".join(self.words[: min(left, len(self.words))])
            left -= len(self.words) + 1
        return said


def build_known_text_model(target: Path, sentence: str = SENTENCE) -> KnownTextModel:
    """Write the checkpoint into `target` (made if need be); the same sentence gives the same bytes."""
    words = sentence.split(" ")
    if len(set(words)) != len(words) or len(words) + len(_SPECIAL) > _VOCAB:
        raise ValueError("a known sentence needs different words, and not too many")
    tokens = [*_SPECIAL, words[0], *(_SPACE + word for word in words[1:])]
    tokens += [f"{_SPACE}spare{number}" for number in range(_VOCAB - len(tokens))]
    target.mkdir(parents=True, exist_ok=True)
    _write_json(target / "tokenizer.json", _tokenizer(tokens))
    _write_json(target / "tokenizer_config.json", _tokenizer_config())
    _write_json(target / "config.json", _config())
    _write_json(target / "generation_config.json", {"eos_token_id": _END_ID})
    (target / "model.safetensors").write_bytes(_safetensors(_weights(len(words))))
    return KnownTextModel(target, sentence)


def _weights(words: int) -> dict[str, tuple[tuple[int, ...], bytes]]:
    first = len(_SPECIAL)
    successor = [first] * _VOCAB
    for token in range(first, first + words):
        successor[token] = token + 1 if token < first + words - 1 else _END_ID
    arrays: dict[str, tuple[tuple[int, ...], bytes]] = {
        "model.embed_tokens.weight": _sparse(_VOCAB, _HIDDEN, [(token, token) for token in range(_VOCAB)], _ONE),
        "lm_head.weight": _sparse(_VOCAB, _HIDDEN, [(successor[token], token) for token in range(_VOCAB)], _TEN),
        "model.norm.weight": ((_HIDDEN,), _ONE * _HIDDEN),
    }
    for layer in range(_LAYERS):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            arrays[f"{at}{norm}.weight"] = ((_HIDDEN,), _ONE * _HIDDEN)
        for part, rows in (("q", _HIDDEN), ("k", _HIDDEN // 2), ("v", _HIDDEN // 2)):
            arrays[f"{at}self_attn.{part}_proj.weight"] = _sparse(rows, _HIDDEN, [], _ONE)
        for name in ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
            arrays[f"{at}{name}.weight"] = _sparse(_HIDDEN, _HIDDEN, [], _ONE)
    return arrays


def _sparse(rows: int, columns: int, ones: list[tuple[int, int]], value: bytes) -> tuple[tuple[int, ...], bytes]:
    data = bytearray(2 * rows * columns)
    for row, column in ones:
        at = 2 * (row * columns + column)
        data[at : at + 2] = value
    return (rows, columns), bytes(data)


def _safetensors(arrays: dict[str, tuple[tuple[int, ...], bytes]]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (shape, data) in arrays.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def _tokenizer(tokens: list[str]) -> dict[str, object]:
    metaspace = {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "never", "split": True}
    added = [
        {"id": token_id, "content": content, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for token_id, content in enumerate(_SPECIAL)
    ]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": metaspace,
        "post_processor": None,
        # Plain replacing works token by token, as an engine decodes; a whole-text decoder would eat the first space.
        "decoder": {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<|unk|>"},
    }


def _tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "TokenizersBackend",
        "unk_token": "<|unk|>",
        "eos_token": "<|end|>",
        "pad_token": "<|end|>",
        "model_max_length": _CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }


def _config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _HIDDEN,
        "intermediate_size": _HIDDEN,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": _VOCAB,
        "max_position_embeddings": _CONTEXT,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": _END_ID,
        "dtype": "bfloat16",
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
