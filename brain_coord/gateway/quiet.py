"""The FastAPI application of the quiet routes, with every error in the one shape."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.openapi import ERRORS, generation_paths
from brain_coord.gateway.routes import dry_run, health, models, nodes, receipts
from brain_coord.gateway.routes.context import SECURITY, ApiContext
from brain_coord.store.errors import StoreUnavailable

ErrorPage = Callable[[Request, ApiError], Response | None]
"""What a browser gets for an error; `None` where JSON is right."""


class _Described(FastAPI):
    """Describes the whole API, not only what it serves."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            document["paths"] = {**generation_paths(SECURITY), **document["paths"]}
            self.openapi_schema = document
        return self.openapi_schema


def quiet_app(context: ApiContext, error_page: ErrorPage) -> FastAPI:
    """The application over one coordinator."""
    app = _Described(title="Brain Coord", version=context.version, docs_url=None, redoc_url=None, responses=ERRORS)
    app.state.context, app.state.error_page = context, error_page
    for module in (models, receipts, nodes, dry_run, health):
        app.include_router(module.router)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(StoreUnavailable, _store_away)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(Exception, _internal_error)
    return app


def _answer(request: Request, error: ApiError) -> Response:
    shown: Response | None = request.app.state.error_page(request, error)
    if shown is not None:
        return shown
    headers = {name.decode(): value.decode() for name, value in error.extra_headers()}
    return JSONResponse(error.body(), status_code=error.status, headers=headers)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _answer(request, error)


async def _store_away(request: Request, _: Exception) -> Response:
    sentence = "the store is away, and nothing was changed; try again shortly"
    return _answer(request, fault("store_unavailable", sentence, retry_after_s=5))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = [(b"allow", value.encode()) for name, value in (error.headers or {}).items() if name == "Allow"]
        sentence = f"{request.url.path} does not take {request.method}"
        return _answer(request, fault("method_not_allowed", sentence, headers=allowed))
    if error.status_code == 404:
        return _answer(request, fault("not_found", f"there is no route {request.url.path}"))
    return _answer(request, ApiError(error.status_code, "invalid_request", str(error.detail)))


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"][1:])
    return _answer(request, fault("invalid_field", f"`{name}`: {first['msg']}", param=name))


async def _internal_error(request: Request, _: Exception) -> Response:
    return _answer(request, fault("internal", "a fault of the coordinator; its log has the details"))
