"""What `gpus`, `models`, `doctor` and `identity show` print."""

from typing import Literal

from brain_node.cli.shapes.base import Problem, Shape


class GpuProcess(Shape):
    """A process that uses a card."""

    pid: int
    used_bytes: int | None


class Gpu(Shape):
    """One card or slice."""

    index: int
    uuid: str | None
    name: str | None
    kind: Literal["discrete", "mig", "unified"]
    state: Literal["ok", "lost", "unsupported"]
    reason: str | None
    nameplate_gb: int | None
    """The size it is sold as."""
    total_bytes: int | None
    free_bytes: int | None
    reserved_bytes: int | None
    used_by_others_bytes: int | None
    visible: bool
    """Whether CUDA_VISIBLE_DEVICES lets it be used."""
    utilization_percent: int | None
    temperature_c: int | None
    power_w: float | None
    power_limit_w: float | None
    compute_capability: str | None
    pci_bus_id: str | None
    parent_uuid: str | None
    """Of a slice: the card it is cut from."""
    mig_index: int | None
    processes: list[GpuProcess]


class Machine(Shape):
    """The cards of this machine."""

    gpus: list[Gpu]
    driver: str | None
    cuda: str | None
    age_s: float | None
    """How old the reading is; null when the driver never answered."""
    problems: list[Problem]


class Placement(Shape):
    """One engine that would be started."""

    model: str
    device: Literal["cuda", "cpu"]
    gpu_uuids: list[str]
    gpu_indices: list[int]
    tensor_parallel: int
    gpu_memory_utilization: float | None
    max_model_len: int
    slots: int
    kv_cache_bytes: int | None
    kv_cache_tokens: int | None
    needed_bytes: int
    budget_bytes: int
    replica: int


class Refused(Shape):
    """A model that would not be started."""

    model: str
    code: str
    message: str
    next_step: str
    needed_bytes: int | None
    free_bytes: int | None


class SurveyedModel(Shape):
    """One model of the catalog against this machine."""

    id: str
    name: str
    params_b: float
    """Parameters in billions."""
    license: str
    gated: bool
    device: str
    mock: bool
    context: int
    max_context: int
    min_vram_mib: int
    class_gb: int | None
    """The size of card it is meant for; null when no single card is large enough."""
    class_met_by: list[str]
    fits: bool
    placement: Placement | None
    refusal: Refused | None


class PlanOfAll(Shape):
    """What `--model auto` would serve."""

    placements: list[Placement]
    refusals: list[Refused]


class MachineFigures(Shape):
    """What the models were held against."""

    gpus: int
    vram_mib: int
    ram_available_bytes: int
    cpu_count: int


class Survey(Shape):
    """The catalog against this machine."""

    models: list[SurveyedModel]
    auto: PlanOfAll
    machine: MachineFigures
    problems: list[Problem]


class Found(Shape):
    """The outcome of one check."""

    check: str
    level: Literal["ok", "warn", "fail"]
    message: str
    next_step: str


class Examination(Shape):
    """Everything that was checked."""

    ok: bool
    findings: list[Found]


class IdentityShown(Shape):
    """The node's identity; the private key stays in its file."""

    node_id: str
    public_key: str
    """Raw Ed25519 key in hex."""
    path: str
