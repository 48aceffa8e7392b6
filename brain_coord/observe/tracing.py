"""Requests as OpenTelemetry traces. Imported only where the operator configured an endpoint; needs the extra `otel`.

The W3C headers of a client are taken and handed on to upstreams. Whether a trace is recorded is the operator's share to
say, not a client's flag. No prompt, no answer, no key and no address is in a span.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanProcessor
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from brain_coord import __version__
from brain_coord.observe.finished import FinishedRequest
from brain_coord.observe.trace import TraceHeaders

FLUSH_S: Final = 5.0
"""How long a stop may wait for spans that are not sent yet."""

W3C: Final = TraceContextTextMapPropagator()


def exporting_to(otlp_url: str) -> SpanProcessor:
    """Sends spans in batches, from a thread of its own, to an OTLP endpoint over HTTP."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return BatchSpanProcessor(OTLPSpanExporter(endpoint=otlp_url))


class Tracing:
    """Implements the gateway's `Tracer`."""

    def __init__(self, processor: SpanProcessor, share: float = 1.0) -> None:
        """Begin tracing.

        Args:
            processor: where spans go.
            share: of traces that are recorded, 0 to 1.
        """
        resource = Resource.create({"service.name": "brain-coord", "service.version": __version__})
        self._provider = TracerProvider(sampler=TraceIdRatioBased(share), resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("brain_coord", __version__)

    def begin(self, path: str, headers: Mapping[bytes, bytes], request_id: str) -> "Traced":
        """The span of a request, below that of the client where it names one."""
        span = self._tracer.start_span(
            f"POST {path}",
            W3C.extract({str(name, "latin-1"): str(value, "latin-1") for name, value in headers.items()}),
            SpanKind.SERVER,
            {"http.request.method": "POST", "http.route": path, "brain.request_id": request_id},
        )
        return Traced(self._tracer, span)

    async def close(self) -> None:
        """Send what is left, within a limit."""
        await asyncio.to_thread(self._provider.force_flush, int(FLUSH_S * 1000))
        await asyncio.to_thread(self._provider.shutdown)


@dataclass(slots=True)
class Traced:
    """One request's span, and that of the attempt that runs."""

    _tracer: Any
    _span: Any
    _attempt: Any = None

    def attempt(self, resource_class: str, target: str) -> TraceHeaders:
        """A child span begins."""
        about = {"brain.class": resource_class, "brain.target": target}
        inside = set_span_in_context(self._span)
        self._attempt = self._tracer.start_span(f"attempt {resource_class}", inside, SpanKind.CLIENT, about)
        carrier: dict[str, str] = {}
        W3C.inject(carrier, set_span_in_context(self._attempt))
        return tuple(carrier.items())

    def attempted(self, attempt: Mapping[str, Any]) -> None:
        """The child span ends, with the cause of a failure."""
        span, self._attempt = self._attempt, None
        if span is None:
            return
        _set(span, {f"brain.{name}": attempt[name] for name in ("model", "ran", "blamed")})
        _set(span, {"http.response.status_code": attempt["status"], "error.type": attempt["cause"]})
        if attempt["cause"] is not None:
            span.set_status(Status(StatusCode.ERROR, attempt["cause"]))
        span.end()

    def end(self, error: str | None, finished: FinishedRequest | None) -> None:
        """The span of the request ends."""
        span = self._span
        if finished is not None:
            draft, queued_ms = finished.draft, finished.draft.timings.queued_ms
            _set(
                span,
                {
                    "brain.decision": finished.decision_id,
                    "brain.receipt": draft.receipt_id if finished.recorded else None,
                    "brain.class": draft.resource_class,
                    "brain.node": draft.node_id,
                    "brain.mode": draft.mode,
                    "brain.privacy": draft.privacy,
                    "brain.outcome": draft.outcome,
                    "brain.queued_ms": None if queued_ms is None else float(queued_ms),  # one type, also for 0
                    "brain.first_output_ms": draft.timings.first_output_ms,
                    "gen_ai.request.model": draft.model,
                    "gen_ai.response.model": draft.served_model,
                    "gen_ai.usage.input_tokens": draft.tokens.prompt_billed,
                    "gen_ai.usage.output_tokens": draft.tokens.completion_billed,
                },
            )
        if error is not None:
            _set(span, {"error.type": error})
            span.set_status(Status(StatusCode.ERROR, error))
        span.end()


def _set(span: Any, attributes: Mapping[str, Any]) -> None:
    """What is not known is left out."""
    for name, value in attributes.items():
        if value is not None:
            span.set_attribute(name, value)
