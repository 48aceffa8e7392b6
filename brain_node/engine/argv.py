"""The command line and environment of one engine.

Nothing secret stands in the words (they show in the process list), and of the agent's environment only what is listed
here goes on, so that no token of the node ever reaches an engine.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from brain_node.contract.engine_flags import flag_value, without_flags
from brain_node.engine.environments import Flavour
from brain_node.engine.spec import EngineSpec

HOST: Final = "127.0.0.1"
"""Engines are reached through the node alone: their routes beside `/v1` ask for no key."""

API_KEY_VARIABLE: Final = "VLLM_API_KEY"

_PASS_ON: Final = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TZ",
        "LD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "CPATH",
        "CC",
        "CXX",
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "XDG_CACHE_HOME",
        "TRITON_CACHE_DIR",
        "TRITON_PTXAS_PATH",
        "FLASHINFER_WORKSPACE_BASE",
        "VLLM_CACHE_ROOT",
        "VLLM_CONFIG_ROOT",
        "VLLM_LOGGING_LEVEL",
        "VLLM_ATTENTION_BACKEND",
        "VLLM_USE_FLASHINFER_SAMPLER",
        "VLLM_CPU_OMP_THREADS_BIND",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "OMP_NUM_THREADS",
        "OPENBLAS_CORETYPE",
        "OPENBLAS_L2_SIZE",
    }
)
_PASS_ON_PREFIXES: Final = ("LC_", "NCCL_")

_QUIET: Final = {
    # Weights are on the disk already; an engine that asks a hub would leak names and could hang.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
    "PYTHONUNBUFFERED": "1",
    # The working folder is the engine's scratch folder: no module may be found there.
    "PYTHONSAFEPATH": "1",
    "PYTHONNOUSERSITE": "1",
}

_CPU_DEFAULTS: Final = {
    # One process fewer and a third less time to start; a CPU engine serves small models to few.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


def command(spec: EngineSpec, port: int) -> tuple[str, ...]:
    """The words that start `spec` on `port` of the loopback address."""
    words = [*spec.program, "--model", str(spec.model_path), "--served-model-name", spec.model_id]
    # A line for every probe would soon push what explains a crash out of the last lines.
    words += ["--host", HOST, "--port", str(port), "--disable-uvicorn-access-log"]
    if spec.tensor_parallel > 1:
        words += ["--tensor-parallel-size", str(spec.tensor_parallel)]
    if spec.memory_fraction is not None:
        words += ["--gpu-memory-utilization", f"{spec.memory_fraction:.4f}"]
    if spec.kv_cache_bytes is not None:
        words += ["--kv-cache-memory-bytes", str(spec.kv_cache_bytes)]
    args = spec.args
    if spec.context is not None:
        args = without_flags(args, "--max-model-len")
        words += ["--max-model-len", str(spec.context)]
    if flag_value(args, "--max-num-seqs") is None:
        words += ["--max-num-seqs", str(spec.max_seqs)]
    if spec.eager and "--enforce-eager" not in args:
        words.append("--enforce-eager")
    return (*words, *args)


def environment(spec: EngineSpec, api_key: str, scratch: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of `spec`.

    Args:
        spec: the engine.
        api_key: the key its `/v1` routes will ask for.
        scratch: its own temporary folder; its path must be short, since sockets lie in it.
        base: the agent's environment.
    """
    kept = {name: value for name, value in base.items() if name in _PASS_ON or name.startswith(_PASS_ON_PREFIXES)}
    defaults = _CPU_DEFAULTS if spec.flavour is Flavour.CPU else {}
    result = {**defaults, **kept, **_QUIET, API_KEY_VARIABLE: api_key, "TMPDIR": str(scratch)}
    if spec.visible_devices is not None:
        result["CUDA_VISIBLE_DEVICES"] = ",".join(spec.visible_devices)
        result["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # an index, where one is used, then means what NVML means by it
    return result
