"""Metrics as Prometheus reads them: sound names, bounded labels, and a dashboard and rules that find them."""

import asyncio
import json
import re
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry, StateChange
from brain_coord.observe.metrics import Metrics, Sources, result_of
from brain_coord.receipts.body import Timings, Tokens
from tests.support.coordinator import CoordinatorProcess, eventually
from tests.support.prometheus import prometheus
from tests.support.raw_node import RawNode, answer
from tests.support.receipts import attempt
from tests.web.test_views import finished

PACKAGING = Path("packaging")


@pytest.fixture
def metrics() -> Metrics:
    health = {"state": "ok", "since_s": None, "spooled": 0}
    return Metrics(
        Sources(Registry(15.0), lambda: 3, lambda: 1, lambda: 0, lambda: health, frozenset({"brain/mock"}), "1.2.3")
    )


def exposed(metrics: Metrics) -> str:
    return asyncio.run(metrics.expose()).decode()


def value(metrics: Metrics, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(exposed(metrics)):
        for sample in family.samples:
            if sample.name == name and all(sample.labels.get(key) == each for key, each in labels.items()):
                return sample.value
    raise AssertionError(f"no {name} {labels}")


def test_a_finished_request_is_counted_by_class_mode_and_outcome(metrics: Metrics):
    timings = Timings(queued_ms=0.0, first_output_ms=120.0, decode_tok_s=50.0, total_ms=800.0)
    metrics.finished([finished(timings=timings, tokens=Tokens(prompt_billed=7, completion_billed=30))])
    labels = {"class": "NATIVE_NETWORK", "outcome": "completed", "mode": "AUTO"}
    assert value(metrics, "brain_requests_total", **labels) == 1
    assert value(metrics, "brain_first_output_seconds_sum") == pytest.approx(0.12)
    assert value(metrics, "brain_decode_tokens_per_second_count") == 1
    assert value(metrics, "brain_tokens_total", kind="completion") == 30
    assert value(metrics, "brain_receipts_recorded_total") == 1
    assert value(metrics, "brain_requests_running") == 2


def test_an_answer_that_did_not_complete_improves_no_figure(metrics: Metrics):
    metrics.finished([finished(outcome="incomplete", tokens=Tokens(completion_billed=9))])
    assert value(metrics, "brain_tokens_total", kind="completion") == 0
    with pytest.raises(AssertionError):
        value(metrics, "brain_first_output_seconds_count", **{"class": "NATIVE_NETWORK"})


def test_a_word_that_a_node_made_up_grows_no_label(metrics: Metrics):
    metrics.finished([finished(attempts=[attempt(cause=f"evil-{number}")]) for number in range(100)])
    assert value(metrics, "brain_attempts_total", result="other") == 100
    assert "evil" not in exposed(metrics)
    assert result_of(None) == "answered"
    assert result_of("node_lost") == "node_lost"
    assert result_of("status_503") == "status_5xx"
    assert result_of("status_²") == result_of("status_٣") == "other"  # digits to Python too


def test_a_heartbeat_is_late_after_one_and_a_half_periods(metrics: Metrics, monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr("brain_coord.observe.metrics.monotonic", lambda: now[0])
    node = SimpleNamespace(node_id="N-1")
    for passed in (0.0, 15.0, 16.0, 40.0):
        now[0] += passed
        metrics.heartbeat(node)
    assert value(metrics, "brain_heartbeats_total") == 4
    assert value(metrics, "brain_heartbeats_late_total") == 1
    metrics.changed(StateChange("N-1", "ONLINE", "OFFLINE", "gone"))
    now[0] += 4000.0
    metrics.heartbeat(node)
    assert value(metrics, "brain_heartbeats_late_total") == 1


def test_the_fleet_is_counted_by_state_and_model(metrics: Metrics):
    registry = metrics.sources.registry
    for number in range(450):  # more than are counted in one go
        registry.add(Node(node_id=f"N-{number:016X}", public_key=b""))
    assert value(metrics, "brain_nodes", state="OFFLINE") == 450
    assert value(metrics, "brain_nodes", state="ONLINE") == 0
    text = exposed(metrics)
    assert "# TYPE brain_node_rtt_median_seconds gauge" in text
    assert "\nbrain_node_rtt_median_seconds " not in text  # nothing measured is no 0


def test_receipts_that_do_not_reach_the_database_are_behind():
    health = {"state": "spooling", "since_s": 0.0, "spooled": 12}
    metrics = Metrics(Sources(Registry(15.0), lambda: 0, lambda: 0, lambda: 0, lambda: health, frozenset(), "1"))
    assert value(metrics, "brain_receipts_lag_seconds") > 1e9
    assert value(metrics, "brain_receipts_spooled") == 12
    assert value(metrics, "brain_receipts_state", state="spooling") == 1


def test_every_name_is_ours_and_promtool_finds_nothing_wrong(metrics: Metrics):
    metrics.finished([finished()])
    metrics.request_refused("invalid_api_key")
    text = exposed(metrics).encode()
    assert all(family.name.startswith("brain_") for family in text_string_to_metric_families(text.decode()))
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr.decode() + checked.stdout.decode()


def test_promtool_accepts_the_rules_and_they_fire_when_they_should():
    folder = PACKAGING / "prometheus"
    for command in (["check", "rules", "brain.rules.yml"], ["test", "rules", "brain.rules.test.yml"]):
        checked = subprocess.run(["promtool", *command], cwd=folder, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def dashboard_queries() -> list[str]:
    dashboard = json.loads((PACKAGING / "grafana" / "brain-coordinator.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


@pytest.mark.slow
async def test_every_query_of_the_dashboard_and_every_rule_finds_data(tmp_path: Path):
    with CoordinatorProcess(tmp_path / "coord", "--open-join") as coordinator:
        key = coordinator.key()
        # Long enough that a decode speed follows from it: a span of a few milliseconds gives none.
        script = partial(answer, words=[f"word{number} " for number in range(20)])
        async with RawNode(coordinator.url, script=script) as node:
            await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
            body = {"model": "brain/mock", "messages": [{"role": "user", "content": "hi"}], "stream": True}

            async def ask(secret: str) -> None:
                async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
                    headers = {"authorization": f"Bearer {secret}"}
                    await client.post(f"{coordinator.url}/v1/chat/completions", json=body, headers=headers)

            with prometheus(coordinator.url, tmp_path) as server:

                def empty() -> list[str]:
                    queries = [query.replace("$__rate_interval", "1m") for query in dashboard_queries()]
                    return [query for query in queries if not server.query(query)]

                # Asked again and again: a rate needs two scrapes, with requests between them.
                for _ in range(60):
                    await ask(key)
                    await ask("wrong")
                    if not (missing := await asyncio.to_thread(empty)):
                        break
                    await asyncio.sleep(1.0)
                assert missing == []
                rules = (PACKAGING / "prometheus" / "brain.rules.yml").read_text()
                for name in sorted(set(re.findall(r"\bbrain_[a-z0-9_]+", rules))):
                    found = await asyncio.to_thread(eventually, lambda name=name: server.query(f"count({name})"), 30)
                    assert found, name
