"""The agent's metrics: read by a real Prometheus parser, unknown left out."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from brain_node.agent.metrics import metrics_of

STATE = {
    "version": "0.1.0",
    "engine": {"kind": "vllm"},
    "coordinator": {"state": "online", "sessions": 2, "attempts": 3},
    "draining": False,
    "jobs": {"active": 1, "slots": 4, "finished": {"ok": 7, "cancelled": 1}, "refused": {}},
    "slot_connections": {"open": 3},
    "engines": [
        {"model": 'a/"b\\', "state": "ready", "starts": 2, "tokens_s": None},
        {"model": "c", "replica": 1, "state": "failed", "starts": 5, "tokens_s": 12.5},
    ],
    "gpus": [
        {
            "uuid": "GPU-1",
            "total_bytes": 24 << 30,
            "free_bytes": None,
            "utilization_percent": 50.0,
            "temperature_c": None,
            "power_w": None,
        }
    ],
}


@pytest.fixture
def samples():
    found = {}
    for family in text_string_to_metric_families(metrics_of(STATE)):
        assert family.documentation
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_counts_and_states(samples):
    assert samples["brain_node_jobs_total", (("outcome", "ok"),)] == 7
    assert samples["brain_node_link_state", (("state", "online"),)] == 1
    assert samples["brain_node_link_state", (("state", "waiting"),)] == 0
    assert samples["brain_node_engine_ready", (("model", 'a/"b\\'), ("replica", "0"))] == 1
    assert samples["brain_node_engine_starts_total", (("model", "c"), ("replica", "1"))] == 5


def test_what_is_not_known_is_left_out(samples):
    names = {name for name, _ in samples}
    assert "brain_node_gpu_memory_bytes" in names
    assert "brain_node_gpu_memory_free_bytes" not in names
    assert "brain_node_gpu_temperature_celsius" not in names
    assert "brain_node_jobs_refused_total" not in names
    tokens = [labels for name, labels in samples if name == "brain_node_engine_tokens_per_second"]
    assert tokens == [(("model", "c"), ("replica", "1"))]


def test_sizes_keep_every_byte(samples):
    assert samples["brain_node_gpu_memory_bytes", (("uuid", "GPU-1"),)] == 24 << 30
    assert "25769803776.0" in metrics_of(STATE)
