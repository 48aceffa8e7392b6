"""The public pages: the network, a node, a model, a decision, a receipt, the verifier and the playground.

They show no prompt, no address and no key.
"""

import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse

from brain_coord.routing.inputs import AUTO_MODEL
from brain_coord.routing.vocabulary import Mode, Privacy
from brain_coord.web.render import SECURITY, fragment, page
from brain_coord.web.site import Site
from brain_coord.web.view.api import groups_of
from brain_coord.web.view.recent import decision_row, tabs_of
from brain_coord.web.view.rows import ROWS_SHOWN, model_row, node_row, offers_of
from brain_coord.web.view.trace import trace_of

NODE_DECISIONS: Final = 10
EVENT_STREAM: Final = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}


def pages_router(site: Site, is_operator: Any) -> APIRouter:
    """The pages over one coordinator.

    Args:
        site: what they are made from.
        is_operator: whether a request comes from a logged-in operator.
    """
    router = APIRouter(include_in_schema=False)

    def missing(heading: str, sentence: str, status: int = 404) -> HTMLResponse:
        return page("missing.html", status=status, heading=heading, sentence=sentence, **site.values())

    @router.get("/network")
    async def network(request: Request) -> HTMLResponse:
        """The fleet, models, classes, decisions and charts, live."""
        frame = await site.hub.fresh()
        return page(
            "network.html",
            frame=frame,
            position=site.hub.position,
            rows_shown=ROWS_SHOWN,
            url=_own_url(request, site),
            **site.values("/network"),
        )

    @router.get("/network/events")
    async def events(request: Request, seen: str = "") -> Response:
        """What changes on /network, as server-sent events; one frame a second for all viewers."""
        if site.hub.full:
            return Response("too many live views are open; the page itself works", 503, {"retry-after": "30"})
        last = request.headers.get("last-event-id") or seen
        return StreamingResponse(site.hub.stream(last), media_type="text/event-stream", headers=EVENT_STREAM)

    @router.get("/network/history")
    async def history(minutes: Annotated[int, Query(ge=1, le=1440)] = 60) -> JSONResponse:
        """The charts' figures of the last `minutes`."""
        columns = site.history.columns(time.time() - 60 * minutes)
        return JSONResponse(columns, headers={"cache-control": "no-store"})

    @router.get("/network/nodes/{node_id}")
    async def node(node_id: str) -> Response:
        """One node: measured beside claimed, its score term by term, why requests passed it by."""
        known = site.registry.get(node_id)
        if known is None:
            if await site.tabs.page(node_id) is None:
                return missing("No such node", f"No node {node_id} has joined.")
            return RedirectResponse(f"{site.base}/network/tabs/{node_id}", 307)  # decisions do not tell the two apart
        decisions = [
            decision_row(each)
            for each in site.recent.newest(len(site.recent))
            if any(attempt.target == node_id for attempt in each.draft.attempts)
        ]
        return page(
            "node.html",
            row=node_row(known),
            rtt_samples=known.measured.rtt.samples,
            agent_version=known.reported.agent_version,
            skips=site.skips(known),
            refused=[(refusal.model, refusal.reason) for refusal in known.reported.refused],
            explanation=site.explain(known),
            decisions=decisions[:NODE_DECISIONS],
            **site.values(),
        )

    @router.get("/network/tabs/{tab_id}")
    async def tab(tab_id: str) -> HTMLResponse:
        """One browser tab: measured and checked beside claimed, its score term by term, what it had a part in."""
        found = await site.tabs.page(tab_id)
        if found is None:
            return missing("No such tab", f"No tab {tab_id} has lent here.")
        decisions = [
            decision_row(each) for each in site.recent.newest(len(site.recent)) if tab_id in tabs_of(each.draft)
        ]
        return page("tab.html", tab=found, row=found.row, decisions=decisions[:NODE_DECISIONS], **site.values())

    @router.get("/network/models/{model_id:path}")
    async def model(model_id: str) -> HTMLResponse:
        """One model and the nodes that serve it."""
        catalog = site.gateway.decider.catalog
        known = catalog.get(model_id)
        if known is None:
            near = ", ".join(catalog.nearest(model_id))
            return missing(
                "No such model", f"This catalog has no {model_id}" + (f"; near to it: {near}." if near else ".")
            )
        census, offers = await site.census(), offers_of(site.gateway.decider.backends)
        serving = [
            (each, next(speed for speed in each.speeds if speed.model == model_id))
            for each in (node_row(node) for node in site.registry if node.connected and model_id in node.models)
        ]
        return page(
            "model.html",
            model=known,
            row=model_row(known, census, offers),
            nodes=serving,
            **site.values(),
        )

    @router.get("/network/decisions/{decision_id}")
    async def decision(decision_id: str, part: bool = False) -> HTMLResponse:
        """How one of the latest requests ran; `part=true` gives the trace alone."""
        finished = site.recent.get(decision_id)
        if finished is None:
            return missing(
                "Not remembered", f"Decision {decision_id} is not among the latest; its receipt may have it."
            )
        trace = trace_of(finished.draft.body())
        if part:
            return _part(trace, site)
        receipt_id = finished.draft.receipt_id if finished.recorded else None
        return page("decision.html", decision_id=decision_id, receipt_id=receipt_id, trace=trace, **site.values())

    @router.get("/network/receipts/{receipt_id}")
    async def receipt(request: Request, receipt_id: str, part: bool = False) -> HTMLResponse:
        """A receipt's place in the chain and how its request ran, without what only its key may see."""
        envelope = await site.receipts.envelope(receipt_id)
        if envelope is None:
            return missing("No such receipt", f"There is no receipt {receipt_id}.")
        trace = trace_of(envelope["body"])
        if part:
            return _part(trace, site)
        return page(
            "receipt.html",
            receipt_id=receipt_id,
            time=envelope["body"]["time"],
            link=envelope,
            trace=trace,
            operator=is_operator(request),
            **site.values(),
        )

    @router.get("/network/verify")
    async def verify() -> HTMLResponse:
        """Check a receipt in the browser."""
        return page("verify.html", **site.values("/network/verify"))

    @router.get("/docs")
    async def docs(request: Request) -> HTMLResponse:
        """The API's routes, in words."""
        groups = groups_of(request.app.openapi())
        return page("docs.html", groups=groups, url=_own_url(request, site), **site.values("/docs"))

    @router.get("/network/playground")
    async def playground(request: Request, model: str = "") -> HTMLResponse:
        """Try a request and see how it ran."""
        offered = site.gateway.decider.models()
        return page(
            "playground.html",
            models=[*([AUTO_MODEL] if offered else []), *offered] or [AUTO_MODEL],
            chosen=model or next(iter(offered), AUTO_MODEL),
            modes=[str(mode) for mode in Mode],
            privacies=[str(level) for level in Privacy],
            url=_own_url(request, site),
            **site.values("/network/playground"),
        )

    return router


def _part(trace: Any, site: Site) -> HTMLResponse:
    """A trace alone, for a page that shows it inside itself."""
    html = fragment("parts/trace.html", trace=trace, **site.values())
    return HTMLResponse(html, headers={**SECURITY, "cache-control": "no-store"})


def _own_url(request: Request, site: Site) -> str:
    """Where this coordinator is reached, as the browser sees it."""
    return f"{request.url.scheme}://{request.headers.get('host', 'COORDINATOR')}{site.base}"
