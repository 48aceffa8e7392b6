"""The table of a run: what each system did, and ours by each peer. Pure."""

from collections.abc import Iterable, Sequence

from scripts.bench.measure import Sample
from scripts.bench.stats import Estimate, Ratio, ratio
from scripts.bench.workloads import Workload

Samples = dict[str, list[Sample]]
"""By system."""

OWN = ("ours", "coordinator")


def estimate(samples: Sequence[Sample], figure: str) -> Estimate | None:
    """One member of the samples over the repeats that have it."""
    values = [value for sample in samples if (value := getattr(sample, figure)) is not None]
    return Estimate.of(values)


def cpu(samples: Sequence[Sample], role: str | None = None) -> Estimate | None:
    """Processor µs per request (per event for long streams) of one role, or of all roles but the engine."""
    sums = [
        sum(used for name, used in sample.cpu_us.items() if (name == role if role else name != "engine"))
        for sample in samples
        if sample.cpu_us
    ]
    return Estimate.of(sums)


def memory(samples: Sequence[Sample], role: str) -> Estimate | None:
    """Bytes per open stream of one role."""
    return Estimate.of([s.rss_per_stream_bytes[role] for s in samples if role in s.rss_per_stream_bytes])


def added_ms(samples: Sequence[Sample], direct: Sequence[Sample], figure: str) -> Estimate | None:
    """What a system adds to the direct way: a difference of means."""
    own, base = estimate(samples, figure), estimate(direct, figure)
    return None if own is None or base is None else own - base


def lines(workload: Workload, samples: Samples) -> Iterable[str]:
    """One workload's part of the table."""
    per = "event" if workload.long else "request"
    delay = "event_delay_ms" if workload.long else "first_output_ms"
    yield f"{workload.title}"
    head = ("", f"{'events' if workload.long else 'requests'}/s", f"added {'delay' if workload.long else 'first'} ms")
    yield _row((*head, f"CPU µs/{per}", "errors", "ours ÷ it: rate", f"CPU/{per}", "added ms"))
    ours = samples.get("ours", [])
    rate = "events" if workload.long else "requests"
    direct = samples.get("direct", [])
    for name, own in samples.items():
        added = None if name == "direct" else added_ms(own, direct, delay)
        compared: tuple[str, ...] = ("", "", "")
        if name not in ("ours", "direct") and ours:
            role = None if name == "vllm-router x2" else OWN[1]
            compared = (
                _ratio(ratio(estimate(ours, rate), estimate(own, rate))),
                _ratio(ratio(cpu(ours, role), cpu(own))),
                _ratio(ratio(added_ms(ours, direct, delay), added)),
            )
        elif name == "direct" and ours:
            compared = (_ratio(ratio(estimate(ours, rate), estimate(own, rate))), "", "")
        errors = sum(sum(sample.errors.values()) for sample in own)
        cells = (name, _number(estimate(own, rate), 0), _number(added, 2), _roles(own), str(errors or "-"))
        yield _row((*cells, *compared))
    if workload.long and ours and (held := memory(ours, "coordinator")) is not None:
        yield f"  memory per open stream: coordinator {held.mean / 1024:.0f} KiB ± {held.spread / 1024:.0f}"


def _roles(samples: Sequence[Sample]) -> str:
    roles = [role for role in (samples[0].cpu_us if samples else {}) if role != "engine"]
    found = [(role, cpu(samples, role)) for role in roles]
    return " + ".join(f"{each.mean:.0f}" for _, each in found if each is not None) or "-"


def _number(value: Estimate | None, digits: int) -> str:
    return "-" if value is None else f"{value.mean:.{digits}f} ± {value.spread:.{digits}f}"


def _ratio(value: Ratio | None) -> str:
    return "-" if value is None else f"{value.value:.2f}{'' if value.conclusive else ' ?'}"


def _row(cells: Sequence[str]) -> str:
    widths = (16, 18, 16, 16, 7, 15, 12, 10)
    return "  " + " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
