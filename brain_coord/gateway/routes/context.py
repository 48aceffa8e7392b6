"""What the quiet routes need, handed to them by the application through `app.state`."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from brain_coord.fleet.registry import Registry
from brain_coord.gateway.auth import Caller, authenticate, bearer_of
from brain_coord.gateway.entry import Gateway
from brain_coord.gateway.http import headers_of
from brain_coord.measure.lag import LoopLag
from brain_coord.receipts.chain import Sealed


class ReceiptShelf(Protocol):
    """Receipts that were recorded."""

    async def envelope(self, receipt_id: str) -> dict[str, Any] | None:
        """One receipt with its place in the chain and its signature."""

    def export(self, key_id: str, since_s: float | None, until_s: float | None) -> AsyncIterator[Sealed]:
        """The receipts of one key, oldest first."""

    async def signer(self) -> dict[str, Any]:
        """The public key in force and its history."""

    def health(self) -> dict[str, Any]:
        """Whether receipts are being recorded, and where."""


@dataclass(slots=True)
class ApiContext:
    """The parts of a running coordinator that the routes read."""

    gateway: Gateway
    registry: Registry
    receipts: ReceiptShelf
    lag: LoopLag
    version: str
    cluster: Callable[[], dict[str, Any]] | None = None
    """How the cluster stands that this coordinator belongs to."""


def context_of(request: Request) -> ApiContext:
    """The context of the application that serves a request."""
    context = request.app.state.context
    assert isinstance(context, ApiContext)
    return context


SECURITY: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"key": []}]
"""The two ways in which a key may come, as the API's description names them."""
Bearer = Annotated[object, Security(HTTPBearer(scheme_name="bearer", auto_error=False))]
KeyHeader = Annotated[object, Security(APIKeyHeader(name="x-api-key", scheme_name="key", auto_error=False))]


async def caller_of(request: Request, _bearer: Bearer, _key: KeyHeader) -> Caller:
    """The key behind a request; 401 without a good one. Both parameters are there for the description alone."""
    return await authenticate(context_of(request).gateway.keys, bearer_of(headers_of(request.scope)))


Context = Annotated[ApiContext, Depends(context_of)]
KnownCaller = Annotated[Caller, Depends(caller_of)]
