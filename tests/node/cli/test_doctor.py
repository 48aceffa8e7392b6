"""`brain-node doctor`: each finding with its next step, and an exit code that tells."""

import asyncio

import orjson
import pytest

from brain_node.agent.doctor.examine import examine
from brain_node.exit_codes import CONFIG, OK, TEMPORARY, UNAVAILABLE, USAGE
from brain_node.settings import resolve
from tests.support.certificates import PrivateCa
from tests.support.node_process import brain_node
from tests.support.raw_coordinator import RawCoordinator


def findings(result):
    return {(each["check"], each["level"]): each for each in orjson.loads(result.stdout)["findings"]}


async def look(data_dir, environ=None, **flags):
    settings = resolve({"engine": "mock", **flags}, {}, data_dir)
    return [finding async for finding in examine(settings, environ or {})]


def of(found, check):
    return next(finding for finding in found if finding.check == check)


def test_without_engine_and_driver_it_says_what_to_do_first(run):
    result = run("doctor", "--json")
    assert result.exit_code == UNAVAILABLE
    found = findings(result)
    assert found["engine", "fail"]["next_step"] == "brain-node engine install"
    assert all(each["next_step"] for (_, level), each in found.items() if level != "ok")


def test_a_mock_needs_neither(run):
    result = run("doctor", "--engine", "mock")
    assert result.exit_code == OK
    assert "0 failed" in result.stdout


async def test_a_good_way_to_the_coordinator(data_dir):
    async with RawCoordinator() as coordinator:
        found = await look(data_dir, url=coordinator.url)
    assert of(found, "coordinator").level == "ok"
    assert "loopback never" in of(found, "proxy").message


async def test_nobody_there(data_dir):
    found = await look(data_dir, url="http://127.0.0.1:9")
    finding = of(found, "coordinator")
    assert (finding.level, finding.exit_code) == ("fail", TEMPORARY)
    assert "nothing listens" in finding.message


@pytest.mark.case("F-06")
async def test_a_certificate_that_is_not_accepted(data_dir, tmp_path):
    ca = PrivateCa(tmp_path)
    async with RawCoordinator(tls=ca.server()) as coordinator:
        assert "--ca-file" in of(await look(data_dir, url=coordinator.url), "tls").next_step
        assert of(await look(data_dir, url=coordinator.url, ca_file=ca.ca_file), "tls").level == "ok"
    unencrypted = of(await look(data_dir, url="http://127.0.0.1:9", ca_file=ca.ca_file), "coordinator")
    assert (unencrypted.level, unencrypted.exit_code) == ("fail", CONFIG)
    assert "https://" in unencrypted.next_step


async def test_a_bad_address_is_the_joins_own_error(data_dir):
    assert of(await look(data_dir, url="ftp://x"), "coordinator").exit_code == USAGE


@pytest.mark.case("D-10")
async def test_a_proxy_is_shown_without_its_password(data_dir):
    environ = {"HTTPS_PROXY": "http://user:PROXY-TESTSECRET@127.0.0.1:9"}
    found = await look(data_dir, environ, url="https://c.example")
    assert "http://127.0.0.1:9" in of(found, "proxy").message
    assert "TESTSECRET" not in str(found)


@pytest.mark.case("E-08")
@pytest.mark.parametrize(("ahead_s", "level"), [(0.0, "ok"), (3 * 3600.0, "warn"), (-600.0, "warn")])
async def test_a_clock_that_is_off_is_information(data_dir, monkeypatch, ahead_s, level):
    async with RawCoordinator(challenge={"server_time": 1_000_000.0}) as coordinator:
        monkeypatch.setattr("brain_node.agent.doctor.network.time.time", lambda: 1_000_000.0 + ahead_s)
        assert of(await look(data_dir, url=coordinator.url), "clock").level == level


async def test_another_protocol(data_dir):
    async with RawCoordinator(challenge={"protocol": 9}) as coordinator:
        finding = of(await look(data_dir, url=coordinator.url), "coordinator")
    assert (finding.level, finding.exit_code) == ("fail", CONFIG)


async def test_a_damaged_key_is_found(data_dir):
    (data_dir / "node.key").write_text("rubbish")
    assert of(await look(data_dir), "identity").level == "fail"


async def test_looking_does_not_join(data_dir):
    async with RawCoordinator() as coordinator:
        code, _, _ = await brain_node("doctor", coordinator.url, "--engine", "mock", "--data-dir", str(data_dir))
        assert code == OK
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(coordinator.link(), 0.1)
