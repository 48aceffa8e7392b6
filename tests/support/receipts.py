"""Receipts for tests: drafts of a plausible size, and sealed chains."""

from brain_coord.receipts.body import Attempt, Price, ReceiptDraft, Timings, Tokens
from brain_coord.receipts.canonical import Written, canonical
from brain_coord.receipts.chain import ChainHead, seal
from brain_coord.receipts.signer import Signer

NODE = "N-3A4F0011223344AA"
START_S = 1_750_000_000.0


def attempt(**changes):
    """An attempt at `NODE` that succeeded."""
    members = {
        "resource_class": "NATIVE_NETWORK",
        "target": NODE,
        "model": "qwen/qwen2.5-7b-instruct",
        "started_ms": 0.412,
        "ended_ms": 858.75,
        "cause": None,
        "status": 200,
        "ran": True,
        "blamed": False,
    }
    return Attempt(**{**members, **changes})


def draft(number=1, **changes):
    """The draft of request `number`, one second after the one before."""
    members = {
        "receipt_id": f"r-{number:08d}",
        "request_id": f"req-{number:08d}",
        "time_s": START_S + number,
        "key_id": "k-aaaaaaaaaaaa",
        "plan": "free",
        "route": "/v1/chat/completions",
        "model": "qwen/qwen2.5-7b-instruct",
        "served_model": "qwen/qwen2.5-7b-instruct",
        "mode": "COMMUNITY",
        "privacy": "PUBLIC",
        "streamed": True,
        "request_sha256": f"{number:064x}",
        "response_sha256": f"{number + 1:064x}",
        "class_decision": Written(
            {
                "ranked": [{"class": "NATIVE_NETWORK", "score": 0.25, "terms": {"cost": 0.0, "latency": 1.0}}],
                "excluded": [{"class": "CLOUD_GPU", "code": "unavailable", "reason": "no GPU configured"}],
            }
        ),
        "node_decision": Written(
            {
                "ranked": [{"node": NODE, "score": 0.814213, "terms": {"capability": 1.0, "latency": 0.333333}}],
                "rejected": [{"node": "N-9B12000000000000", "reason": "offline"}],
                "reason": "0 of 1 nodes … (N-9B12…: offline)",
            }
        ),
        "attempts": [attempt()],
        "resource_class": "NATIVE_NETWORK",
        "node_id": NODE,
        "outcome": "completed",
        "tokens": Tokens(prompt_reported=12, completion_reported=40, completion_counted=40, counted_by="text bound"),
        "timings": Timings(queued_ms=0.0, first_output_ms=41.25, decode_ms=812.5, decode_tok_s=48.0, total_ms=860.1),
        "price": Price(amount_usd=0.0000123, prompt_usd_per_1m=0.1),
    }
    return ReceiptDraft(**{**members, **changes})


def sealed_chain(count, batch=1, signer=None):
    """A chain of `count` receipts, sealed `batch` at a time; the signer comes with it."""
    signer = signer or Signer.generate()
    head, chain = ChainHead(signer.key_id), []
    while len(chain) < count:
        numbers = range(len(chain) + 1, min(count, len(chain) + batch) + 1)
        chain += seal(head, [canonical(draft(number).body()) for number in numbers], signer)
        head = chain[-1].head
    return chain, signer
