"""Small Qwen3 checkpoints: a random one made by transformers with its logits, and one whose every answer is known."""

import json
import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.support.models import KnownTextModel, build_known_text_model

ENGINES = Path(os.environ.get("BRAIN_NODE_ENGINES_DIR", Path(__file__).parents[2] / ".brain" / "engines"))

_MAKE = """
import json, sys
import numpy as np, torch
from transformers import Qwen3Config, Qwen3ForCausalLM
folder, dtype, tied = sys.argv[1], sys.argv[2], sys.argv[3] == "tied"
torch.manual_seed(20)
torch.set_num_threads(1)
config = Qwen3Config(vocab_size=384, hidden_size=128, intermediate_size=320, num_hidden_layers=4,
    num_attention_heads=8, num_key_value_heads=2, head_dim=32, max_position_embeddings=512, rope_theta=1000000.0,
    tie_word_embeddings=tied, bos_token_id=None, eos_token_id=1, initializer_range=0.08)
model = Qwen3ForCausalLM(config)
with torch.no_grad():
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.copy_(1 + 0.2 * torch.randn_like(weight))
model.to(getattr(torch, dtype)).save_pretrained(folder)
model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
tokens = torch.randint(0, 384, (1, 64), generator=torch.Generator().manual_seed(3))
with torch.no_grad():
    logits = model(tokens).logits[0].numpy()
    greedy = model.generate(tokens[:, :8], max_new_tokens=12, do_sample=False, eos_token_id=None)[0].tolist()
np.save(folder + "/logits.npy", logits)
json.dump({"tokens": tokens[0].tolist(), "greedy": greedy}, open(folder + "/expected.json", "w"))
"""


def engine_python() -> Path:
    """The interpreter of an installed CPU engine, which has transformers and torch."""
    found = sorted(ENGINES.glob("cpu-*/bin/python"))
    assert found, f"no CPU engine in {ENGINES}; install one with `brain-node engine install --cpu`"
    return found[-1]


@dataclass(frozen=True)
class RandomModel:
    """A random checkpoint, and what transformers makes of 64 tokens in 32-bit floats on the CPU."""

    path: Path
    tokens: list[int]
    logits: NDArray[np.float32]
    greedy: list[int]


def build_random_model(folder: Path, dtype: str = "bfloat16", *, tied: bool = False) -> RandomModel:
    build_known_text_model(folder)  # for its tokenizer
    (folder / "model.safetensors").unlink()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [str(engine_python()), "-c", _MAKE, str(folder), dtype, "tied" if tied else "untied"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=env)
    assert done.returncode == 0, done.stderr
    expected = json.loads((folder / "expected.json").read_text())
    return RandomModel(folder, expected["tokens"], np.load(folder / "logits.npy"), expected["greedy"])


def build_known_qwen3(folder: Path, sentence: str | None = None) -> KnownTextModel:
    """The known-text model as a Qwen3: the same weights, and the norms of queries and keys that Qwen3 has."""
    model = build_known_text_model(folder) if sentence is None else build_known_text_model(folder, sentence)
    config = json.loads((folder / "config.json").read_text())
    heads = config["num_attention_heads"]
    config |= {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": config["hidden_size"] // heads,
        "attention_bias": False,
        "max_position_embeddings": 1024,
    }
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    ones = b"\x80\x3f" * config["head_dim"]
    for layer in range(config["num_hidden_layers"]):
        for name in ("q_norm", "k_norm"):
            header[f"model.layers.{layer}.self_attn.{name}.weight"] = {
                "dtype": "BF16",
                "shape": [config["head_dim"]],
                "data_offsets": [len(body), len(body) + len(ones)],
            }
            body += ones
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return model
