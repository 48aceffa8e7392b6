"""How much memory a model takes, computed from its architecture.

The published formula, in bytes, for one card of `n` that share the model (`n` = 1 on a single card):

    floor(context) = weights / n + kv(context) / min(n, kv_heads) + activation + runtime
    kv(tokens)     = 2 · kv_heads · head_dim · kv_value_bytes
                     · (full_layers · tokens + sliding_layers · min(tokens, sliding_window + BATCHED_TOKENS))

- `weights`: the checkpoint as it is loaded.
- `kv`: one key and one value per layer, head and token. Layers with a sliding window keep that window only, plus the
  tokens of the batch being computed.
- `activation`: the peak of one forward pass of `BATCHED_TOKENS` tokens, sampling and CUDA graphs included.
- `runtime`: the driver's context of the process, which lies outside what the engine accounts for.

A model's `min_vram_mib` in the shipped catalog is this floor at the entry's own context on one card, rounded up.
"""

import math
from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20

BATCHED_TOKENS: Final = 2048
"""Tokens of one prefill step (`--max-num-batched-tokens`); the activation peak is for this many."""

ACTIVATION_BYTES: Final = 768 * MIB
"""Activation peak of a text model whose entry says nothing else."""

CUDA_RUNTIME_BYTES: Final = 512 * MIB
"""Driver context and libraries of one engine process on one card."""

CPU_RUNTIME_BYTES: Final = 1024 * MIB
"""What an engine process takes in RAM beside weights and KV cache (interpreter, libraries, activations)."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The part of a model's shape that decides its memory, as in the checkpoint's own configuration."""

    weights_bytes: int
    layers: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    kv_value_bytes: int = 2
    """Bytes of one stored key or value element: 2 for 16-bit caches, 1 for fp8."""
    full_attention_layers: int | None = None
    """Layers that keep the whole context; `None` means all of them."""
    sliding_window: int | None = None
    """Tokens that the other layers keep; `None` when there are no such layers."""
    activation_bytes: int = ACTIVATION_BYTES

    def kv_bytes(self, tokens: int) -> int:
        """Bytes of KV cache that one sequence of `tokens` tokens takes over all heads."""
        full = self.layers if self.full_attention_layers is None else self.full_attention_layers
        windowed = tokens if self.sliding_window is None else min(tokens, self.sliding_window + BATCHED_TOKENS)
        per_layer = 2 * self.kv_heads * self.head_dim * self.kv_value_bytes
        return per_layer * (full * tokens + (self.layers - full) * windowed)

    def kv_tokens(self, kv_bytes: int) -> int:
        """The longest sequence whose KV cache fits in `kv_bytes` over all heads; the inverse of `kv_bytes()`."""
        if kv_bytes <= 0:
            return 0
        low, high = 0, 1
        while self.kv_bytes(high) <= kv_bytes:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.kv_bytes(middle) <= kv_bytes else (low, middle)
        return low

    def divides(self, cards: int) -> bool:
        """Whether `cards` cards can share this model: every card gets the same number of heads.

        With more cards than KV heads each KV head is kept on several cards, which needs an even split as well.
        """
        if cards < 1 or self.attention_heads % cards:
            return False
        return self.kv_heads % cards == 0 or cards % self.kv_heads == 0

    def kv_shards(self, cards: int) -> int:
        """Into how many parts the KV cache is cut over `cards` cards; beyond the KV heads it is copied, not cut."""
        return min(cards, self.kv_heads)

    def floor_bytes(self, context: int, cards: int = 1) -> int:
        """Bytes that each of `cards` NVIDIA cards needs free to serve one sequence of `context` tokens."""
        weights = math.ceil(self.weights_bytes / cards)
        kv = math.ceil(self.kv_bytes(context) / self.kv_shards(cards))
        return weights + kv + self.activation_bytes + CUDA_RUNTIME_BYTES

    def ram_floor_bytes(self, context: int) -> int:
        """Bytes of RAM that an engine on the CPU needs to serve one sequence of `context` tokens."""
        return self.weights_bytes + self.kv_bytes(context) + CPU_RUNTIME_BYTES
