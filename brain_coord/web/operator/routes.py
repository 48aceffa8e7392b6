"""The operator's pages: login, nodes with their addresses, keys, join tokens, receipts."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from brain_coord.fleet.node import Node
from brain_coord.gateway.errors import fault
from brain_coord.receipts.body import timestamp
from brain_coord.receipts.chain import DamagedReceipt, Sealed
from brain_coord.store.records import Plan
from brain_coord.store.store import Store
from brain_coord.web.operator.forms import check_csrf, read_form, refused
from brain_coord.web.operator.secret import read_secret
from brain_coord.web.operator.sessions import LIFE_S, Session, Sessions
from brain_coord.web.render import page
from brain_coord.web.site import Site
from brain_coord.web.view.rows import node_row

log = structlog.get_logger("brain.operator")

NodeAction = Callable[[Node, dict[str, Any]], Awaitable[None]]
"""What an operator does to a node: durable before it holds; a reason may come with it."""

COOKIE: Final = "brain_operator"
RECEIPTS_SHOWN: Final = 20
DURATIONS_S: Final = {"1h": 3600.0, "1d": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0, "": None}


@dataclass(slots=True)
class OperatorPages:
    """The operator's side over one coordinator."""

    site: Site
    store: Store
    actions: Mapping[str, NodeAction]
    data_dir: Path
    sessions: Sessions = field(default_factory=Sessions)

    def session(self, request: Request) -> Session | None:
        """The session of a logged-in operator."""
        return self.sessions.find(request.cookies.get(COOKIE), read_secret(self.data_dir), monotonic())

    def is_operator(self, request: Request) -> bool:
        """Whether a request comes from a logged-in operator."""
        return self.session(request) is not None

    def _home(self) -> RedirectResponse:
        return RedirectResponse(f"{self.site.base}/network/operator", 303, {"cache-control": "no-store"})

    def router(self) -> APIRouter:
        """`/network/operator…`."""
        router = APIRouter(prefix="/network/operator", include_in_schema=False)
        router.add_api_route("", self.overview, methods=["GET"])
        router.add_api_route("/login", self.log_in, methods=["POST"])
        for path, act in (
            ("/logout", self._log_out),
            ("/nodes/{subject}/{action}", self._node),
            ("/tabs/{subject}/{action}", self._tab),
            ("/keys", self._create_key),
            ("/keys/{subject}/revoke", self._revoke_key),
            ("/tokens", self._create_token),
            ("/tokens/{subject}/revoke", self._revoke_token),
        ):
            router.add_api_route(path, self._posted(act), methods=["POST"])
        router.add_api_route("/receipts/{receipt_id}", self.receipt, methods=["GET"])
        return router

    def _posted(
        self, act: Callable[[Request, Session, dict[str, str]], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A route for a form of a logged-in operator."""

        async def route(request: Request) -> Response:
            """A form of the operator's page."""
            session = self.session(request)
            if session is None:
                return self._home()
            form = await read_form(request)
            check_csrf(session, form)
            return await act(request, session, form)

        return route

    async def overview(self, request: Request) -> Response:
        """Everything at a glance, or the login."""
        session = self.session(request)
        if session is None:
            return self._login_page()
        return await self._overview(session)

    def _login_page(self, error: str | None = None, status: int = 200) -> Response:
        known = read_secret(self.data_dir) is not None
        return page("login.html", status=status, known=known, error=error, **self.site.values("/network/operator"))

    async def log_in(self, request: Request) -> Response:
        """Take the secret, give a cookie."""
        form = await read_form(request)
        token = self.sessions.log_in(read_secret(self.data_dir), form.get("secret", ""), monotonic())
        if token is None:
            log.warning("operator login refused", address=request.client.host if request.client else None)
            return self._login_page("This is not the operator’s secret.", 403)
        log.info("operator logged in", address=request.client.host if request.client else None)
        answer = self._home()
        answer.set_cookie(
            COOKIE,
            token,
            max_age=int(LIFE_S),
            path=f"{self.site.base}/network",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _log_out(self, request: Request, _: Session, __: dict[str, str]) -> Response:
        self.sessions.log_out(request.cookies.get(COOKIE))
        answer = self._home()
        answer.delete_cookie(COOKIE, path=f"{self.site.base}/network")
        return answer

    async def _overview(self, session: Session, made: dict[str, Any] | None = None) -> Response:
        shown = (await self.site.census()).first()
        rows = [(node_row(node), node, None if node.session is None else node.session.address) for node in shown]
        keys, tokens = await self.store.list_keys(), await self.store.list_tokens()
        receipts = [_receipt_row(sealed) for sealed in await self.store.recent_receipts(RECEIPTS_SHOWN)]
        return page(
            "operator.html",
            csrf=session.csrf,
            rows=rows,
            tabs=self.site.tabs.rows(),
            keys=keys[::-1],
            tokens=tokens[::-1],
            receipts=receipts,
            made=made,
            shown_time=lambda at_s: "" if at_s is None else timestamp(at_s)[:16].replace("T", " "),
            **self.site.values("/network/operator"),
        )

    async def _node(self, request: Request, _: Session, form: dict[str, str]) -> Response:
        node_id, action = request.path_params["subject"], request.path_params["action"]
        node = self.site.registry.get(node_id)
        if action not in self.actions or node is None:
            raise fault("not_found", f"there is no node {node_id}, or nothing called {action} to be done to it")
        await self.actions[action](node, {"reason": form.get("reason", "").strip()})
        log.info("operator acted on a node", node=node_id, action=action)
        return self._home()

    async def _tab(self, request: Request, _: Session, form: dict[str, str]) -> Response:
        tab_id, action = request.path_params["subject"], request.path_params["action"]
        tabs, done = self.site.tabs, False
        if action == "ban":
            done = await tabs.ban(tab_id, form.get("reason", "").strip())
        elif action == "unban":
            done = await tabs.unban(tab_id)
        if not done:
            raise fault("not_found", f"there is no tab {tab_id}, or nothing called {action} to be done to it")
        log.info("operator acted on a tab", tab=tab_id, action=action)
        return self._home()

    async def _create_key(self, _: Request, session: Session, form: dict[str, str]) -> Response:
        plan: Plan = "paid" if form.get("plan") == "paid" else "free"
        key, text = await self.store.create_key(plan, _label(form))
        log.info("operator made a key", key=key.key_id, plan=plan)
        return await self._overview(session, {"kind": "key", "text": text, "id": key.key_id})

    async def _revoke_key(self, request: Request, _: Session, __: dict[str, str]) -> Response:
        await self.store.revoke_key(request.path_params["subject"])
        return self._home()

    async def _create_token(self, request: Request, session: Session, form: dict[str, str]) -> Response:
        uses = form.get("uses", "").strip()
        if form.get("ttl", "") not in DURATIONS_S or (uses and not (uses.isdecimal() and 0 < int(uses) < 1_000_000)):
            raise refused("uses must be a whole number, and the time one of the list", 400)
        token, text = await self.store.create_token(
            operator=form.get("operator") == "on",
            uses=int(uses) if uses else None,
            ttl_s=DURATIONS_S[form.get("ttl", "")],
            label=_label(form),
        )
        log.info("operator made a join token", token=token.token_id, operator=token.operator)
        url = f"{request.url.scheme}://{request.headers.get('host', 'COORDINATOR')}{self.site.base}"
        return await self._overview(session, {"kind": "token", "text": text, "id": token.token_id, "url": url})

    async def _revoke_token(self, request: Request, _: Session, __: dict[str, str]) -> Response:
        await self.store.revoke_token(request.path_params["subject"])
        return self._home()

    async def receipt(self, request: Request, receipt_id: str) -> Response:
        """A whole receipt."""
        if not self.is_operator(request):
            raise refused("log in as the operator", 401)
        envelope = await self.site.receipts.envelope(receipt_id)
        if envelope is None:
            raise fault("not_found", f"there is no receipt {receipt_id}")
        return JSONResponse(envelope, headers={"cache-control": "no-store"})


def _receipt_row(sealed: Sealed) -> dict[str, Any]:
    """A receipt for the list; of a damaged one only its place, so that the others are still seen."""
    try:
        return sealed.envelope()
    except DamagedReceipt:
        return {"chain": sealed.chain, "seq": sealed.seq, "body": None}


def _label(form: dict[str, str]) -> str | None:
    return form.get("label", "").strip()[:80] or None
