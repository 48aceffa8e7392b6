"""Receipts: one, its verification, an export, and the signer's key. A key sees its own receipts only."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from brain_coord.gateway.errors import fault
from brain_coord.gateway.routes.context import ApiContext, Context, KnownCaller
from brain_coord.receipts.chain import Sealed
from brain_coord.receipts.columns import csv_head, csv_row
from brain_coord.receipts.verify import BadReceipt, verify_envelope

router = APIRouter(tags=["receipts"])


async def _own(context: ApiContext, receipt_id: str, key_id: str | None) -> dict[str, Any]:
    envelope = await context.receipts.envelope(receipt_id)
    if envelope is None or envelope["body"].get("key") != key_id:
        raise fault("not_found", f"this key has no receipt {receipt_id}")
    return envelope


@router.get("/v1/receipts/{receipt_id}")
async def get_receipt(receipt_id: str, context: Context, caller: KnownCaller) -> dict[str, Any]:
    """The receipt with its place in the chain and its signature."""
    return await _own(context, receipt_id, caller.key_id)


@router.get("/v1/receipts/{receipt_id}/verify")
async def verify_receipt(receipt_id: str, context: Context, caller: KnownCaller) -> dict[str, Any]:
    """Whether hash and signature hold. `brain-coord receipts verify` does the same offline, without trusting us."""
    envelope = await _own(context, receipt_id, caller.key_id)
    try:
        link = verify_envelope(envelope)
    except BadReceipt as bad:
        return {"receipt": receipt_id, "valid": False, "code": bad.code, "reason": str(bad)}
    return {"receipt": receipt_id, "valid": True, "chain": link.chain, "seq": link.seq, "signer": link.signer}


@router.get(
    "/v1/receipts",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/jsonl": {}, "text/csv": {}}}},
)
async def export_receipts(
    context: Context,
    caller: KnownCaller,
    since: Annotated[float | None, Query(alias="from", description="seconds since 1970")] = None,
    until: Annotated[float | None, Query(alias="to", description="seconds since 1970")] = None,
    format: Annotated[Literal["json", "csv"], Query(description="JSON lines or CSV")] = "json",  # noqa: A002
) -> StreamingResponse:
    """The receipts of the requests that this key made, oldest first."""
    receipts = await _begun(context.receipts.export(caller.key_id or "", since, until))
    if format == "csv":
        return StreamingResponse(_rows(receipts), media_type="text/csv")
    return StreamingResponse((receipt.line() + b"\n" async for receipt in receipts), media_type="application/jsonl")


async def _begun(receipts: AsyncIterator[Sealed]) -> AsyncIterator[Sealed]:
    """The same receipts, with the first at hand: where there is none to be had the answer has not begun yet."""
    first = await anext(receipts, None)

    async def whole() -> AsyncIterator[Sealed]:
        if first is not None:
            yield first
        async for receipt in receipts:
            yield receipt

    return whole()


async def _rows(receipts: AsyncIterator[Sealed]) -> AsyncIterator[str]:
    yield csv_head()
    async for receipt in receipts:
        yield csv_row(receipt)


@router.get("/v1/signer")
async def get_signer(context: Context) -> dict[str, Any]:
    """The public key that signs receipts now, and those before it; `others` sign other chains of the same store."""
    return await context.receipts.signer()
