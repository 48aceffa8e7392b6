"""A receipt as one row of a spreadsheet."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from brain_coord.receipts.chain import DamagedReceipt, Sealed

_PATHS: dict[str, tuple[str, ...]] = {
    "id": ("body", "id"),
    "time": ("body", "time"),
    "key": ("body", "key"),
    "plan": ("body", "plan"),
    "route": ("body", "route"),
    "model": ("body", "model"),
    "served_model": ("body", "served_model"),
    "mode": ("body", "mode"),
    "privacy": ("body", "privacy"),
    "class": ("body", "class"),
    "node": ("body", "node"),
    "outcome": ("body", "outcome"),
    "error": ("body", "error"),
    "prompt_billed": ("body", "tokens", "prompt_billed"),
    "completion_billed": ("body", "tokens", "completion_billed"),
    "first_output_ms": ("body", "timings", "first_output_ms"),
    "decode_tok_s": ("body", "timings", "decode_tok_s"),
    "total_ms": ("body", "timings", "total_ms"),
    "amount_usd": ("body", "price", "amount_usd"),
    "chain": ("chain",),
    "seq": ("seq",),
    "hash": ("hash",),
}
COLUMNS = tuple(_PATHS)
"""The columns, in order. The full receipt is the JSON form; this one is for sums."""

DAMAGED = "receipt_damaged"
"""Stands as the `error` of a receipt that cannot be read: left out, nobody would miss it in a sum."""


def csv_head() -> str:
    """The first line."""
    return _line(COLUMNS)


def csv_row(receipt: Sealed) -> str:
    """One receipt as a line; what is unknown is an empty cell, and of a damaged one its place is known."""
    envelope: Mapping[str, Any]
    try:
        envelope = receipt.envelope()
    except DamagedReceipt:
        place = {"chain": receipt.chain, "seq": receipt.seq, "hash": receipt.hash.hex()}
        envelope = {"body": {"error": DAMAGED}, **place}
    return _line([cell(_at(envelope, path)) for path in _PATHS.values()])


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def cell(value: Any) -> Any:
    """A value as a spreadsheet may have it: it runs text that begins like a formula, and not every name is ours."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _line(cells: Any) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()
