"""SIGHUP: a changed configuration is taken while requests run, and a wrong one changes nothing."""

import asyncio
import json
import ssl
import subprocess
import sys

import pytest

from tests.support.certificates import PrivateCa
from tests.support.configured import Configured
from tests.support.eventually import eventually
from tests.support.fake_openai import FakeOpenAi, chat


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    with Configured(tmp_path_factory.mktemp("coord") / "data") as running:
        yield running


async def test_a_stream_goes_on_at_an_upstream_that_the_new_file_does_not_know(coordinator):
    gate = asyncio.Event()

    async def halfway(request, body):
        await gate.wait()
        return await chat()(request, body)

    async with FakeOpenAi("old", script=halfway) as old, FakeOpenAi("new") as new:
        coordinator.reload(old.toml("cloud", "leaving", probe_s=0))
        running = asyncio.create_task(coordinator.chat("old", stream=True))
        await eventually(lambda: old.running == 1)
        coordinator.reload(new.toml("external", "coming", probe_s=0))
        assert (await coordinator.chat("new")).status_code == 200
        assert (await coordinator.chat("old")).status_code == 404
        gate.set()
        reply = await running
    assert reply.text.rstrip().endswith("data: [DONE]")
    assert "away " in reply.text


async def test_a_wrong_file_keeps_the_old_configuration_and_says_why(coordinator):
    async with FakeOpenAi("m") as server:
        coordinator.reload(server.toml("external", "kept", probe_s=0))
        line = coordinator.reload("[queue]\nwait_s = -1\n", told="configuration not reloaded")
        assert (await coordinator.chat("m")).status_code == 200
    told = json.loads(line)
    assert told["level"] == "error"
    assert told["faults"] == [f"file {coordinator.file}: [queue] wait_s: must be at least 0 (is -1)"]


async def test_what_cannot_change_now_is_told(coordinator):
    line = coordinator.reload('[server]\nport = 1\nhost = "0.0.0.0"\n[routing]\ncommunity_first = "off"\n')
    # The port was given as a flag, which beats the file, so only the host is left.
    assert json.loads(line)["needs_restart"] == ["[server] host"]


async def test_rules_of_the_operator_hold_from_the_next_request_on(coordinator):
    key = coordinator.key("free")
    modes = []
    async with FakeOpenAi("m") as server:
        table = server.toml("external", "ruled", probe_s=0)
        for rule in ("free", "off", "all"):
            coordinator.reload(f'[routing]\ncommunity_first = "{rule}"\n', table)
            reply = await coordinator.chat("m", secret=key, privacy="PUBLIC")
            modes.append(reply.json()["brain"]["mode"])
    assert modes == ["COMMUNITY", "AUTO", "COMMUNITY"]


async def test_origins_of_web_pages_change_with_the_file(coordinator):
    asked = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "POST"}
    async with coordinator.http() as http:
        coordinator.reload()
        before = await http.options("/v1/chat/completions", headers=asked)
        coordinator.reload('[server]\ncors_origins = ["https://app.example.com"]\n')
        after = await http.options("/v1/chat/completions", headers=asked)
    assert "access-control-allow-origin" not in before.headers
    assert after.headers["access-control-allow-origin"] == "https://app.example.com"


def test_https_with_a_certificate_that_is_renewed_while_it_runs(tmp_path):
    ca = PrivateCa(tmp_path)
    ca.server()
    pem = tmp_path / "server.pem"

    def served(port: int) -> str:
        return ssl.get_server_certificate(("127.0.0.1", port))

    tls = f'[server]\ntls_cert = "{pem}"\ntls_key = "{pem}"\n'
    with Configured(tmp_path / "data", tls) as running:
        assert running.url.startswith("https://127.0.0.1:")
        first = served(running.port)
        assert first.strip() in pem.read_text()
        ca.server()
        running.reload(tls)
        second = served(running.port)
        assert second != first
        assert second.strip() in pem.read_text()
        line = running.reload("")
        assert json.loads(line)["needs_restart"] == ["[server] tls_cert"]


@pytest.mark.case("F-04")
def test_a_wrong_configuration_ends_the_start_with_the_code_that_forbids_a_restart(tmp_path):
    (tmp_path / "config.toml").write_text("[server]\nprot = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "brain_coord", "serve", "--data-dir", str(tmp_path), "--port", "70000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 78
    assert done.stdout == ""
    assert "error [bad_config]:" in done.stderr
    assert "flag --port: [server] port: must be at most 65535 (is 70000)" in done.stderr
    assert "[server] prot: there is no `prot` here; did you mean `port`?" in done.stderr
    assert "Traceback" not in done.stderr
