"""The messages that a node sends with every job, written without the general model.

A model checks and copies each field; for messages of three fields that costs several times what the message does.
"""

import orjson

from brain_node.contract.messages import EndCause


def accepted_text(job_id: str) -> bytes:
    """`accepted`, as `encode` would write it."""
    return orjson.dumps({"type": "accepted", "id": job_id})


def head_text(job_id: str, status: int, content_type: str, retry_after: str | None) -> bytes:
    """`head`, as `encode` would write it; headers longer than the protocol carries are cut."""
    fields = {"type": "head", "id": job_id, "status": status, "content_type": content_type[:256]}
    if retry_after:
        fields["retry_after"] = retry_after[:64]
    return orjson.dumps(fields)


def end_text(job_id: str, cause: EndCause | None) -> bytes:
    """`end`, as `encode` would write it."""
    if cause is None:
        return orjson.dumps({"type": "end", "id": job_id, "ok": True})
    return orjson.dumps({"type": "end", "id": job_id, "ok": False, "cause": cause})
