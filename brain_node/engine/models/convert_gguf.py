"""Converts a GGUF model to safetensors; run by the engine environment's interpreter, never imported by the agent."""

import importlib
import sys
from pathlib import Path


def convert(gguf: Path, target: Path) -> None:
    """Load `gguf` dequantised to bfloat16 and save it with its tokenizer in `target`."""
    # By name: they live in the engine's environment only, and the agent's type checker must not look for them.
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **where, quantization_config=transformers.GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
