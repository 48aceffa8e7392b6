"""Gauges of the browser tabs of one coordinator. Unlike nodes, each coordinator of a cluster tells of its own alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, Metric

from brain_coord.observe.families import STATES, by, one


@dataclass(frozen=True, slots=True)
class TabFigures:
    """The browser network at one moment.

    Attributes:
        states: tabs by state, those that /network lists.
        slots_offered, slots_active: of the connected ones.
        unmeasured: connected tabs that passed no challenge in their session.
        caught: answers that did not stand their check, since the coordinator started.
        stages_offered: of the models that were added for tabs.
        stages_held: those of them that some tab holds.
        stages_loading: tabs that load one.
        jobs_running: products that were asked for and are not over.
    """

    states: Mapping[str, int] = field(default_factory=dict)
    slots_offered: int = 0
    slots_active: int = 0
    unmeasured: int = 0
    caught: int = 0
    stages_offered: int = 0
    stages_held: int = 0
    stages_loading: int = 0
    jobs_running: int = 0


def tab_gauges(figures: TabFigures) -> Iterator[Metric]:
    """All of them, as Prometheus reads them."""
    yield by(
        "brain_tabs",
        "Browser tabs of this coordinator by state; OFFLINE are those that left while set aside or banned.",
        "state",
        {state: figures.states.get(state, 0) for state in STATES},
    )
    yield by(
        "brain_tab_slots",
        "Slots of connected tabs: offered, and active in a job.",
        "kind",
        {"offered": figures.slots_offered, "active": figures.slots_active},
    )
    yield one("brain_tabs_unmeasured", "Connected tabs that passed no challenge yet.", figures.unmeasured)
    yield CounterMetricFamily(
        "brain_tabs_caught", "Answers of tabs that did not stand their check.", value=figures.caught
    )
    yield by(
        "brain_tab_stages",
        "Stages of models for tabs: offered, held by some tab, loading; fewer held than offered, and a model is not whole.",
        "kind",
        {"offered": figures.stages_offered, "held": figures.stages_held, "loading": figures.stages_loading},
    )
    yield one("brain_compute_jobs_running", "Products for clients that tabs work at.", figures.jobs_running)
