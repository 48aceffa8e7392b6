"""`brain-node service`: units that keep trying what may pass, and stop at what may not."""

import configparser
from pathlib import Path

import pytest

from brain_node.cli.unit import UnitSpec, unit_text
from brain_node.exit_codes import AUTH_REFUSED, CONFIG, OK, TEMPORARY, UNAVAILABLE, USAGE

ROOT = Path(__file__).parents[3]


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """A systemctl that writes down what it was asked, and fails when told to."""
    folder = tmp_path / "bin"
    folder.mkdir()
    calls = tmp_path / "calls"
    calls.touch()
    program = folder / "systemctl"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n[ ! -e {tmp_path}/fail ] || {{ echo "no bus" >&2; exit 1; }}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return calls


def service_section(text: str) -> list[tuple[str, str]]:
    return [(k, v) for k, _, v in (line.partition("=") for line in text.splitlines() if not line.startswith("#")) if v]


@pytest.mark.case("F-04")
@pytest.mark.parametrize("system", [True, False])
def test_a_unit_restarts_what_may_pass_and_nothing_else(system):
    fields = dict(service_section(unit_text(UnitSpec(("join",), system, 60.0))))
    assert fields["Restart"] == "on-failure"
    prevented = {int(code) for code in fields["RestartPreventExitStatus"].split()}
    assert {AUTH_REFUSED, CONFIG, USAGE} == prevented
    assert not prevented & {TEMPORARY, UNAVAILABLE}
    assert int(fields["TimeoutStopSec"]) > 60


@pytest.mark.parametrize(
    ("word", "written"),
    [("eu west", '"eu west"'), ("100%", "100%%"), ("$HOME", "$$HOME"), ('say "x"', '"say \\"x\\""'), ("", '""')],
)
def test_words_reach_the_program_as_they_are(word, written):
    fields = dict(service_section(unit_text(UnitSpec(("a", word), False, 60.0))))
    assert fields["ExecStart"] == f"a {written}"


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        (
            "brain-node.service",
            UnitSpec(("/opt/brain-node/bin/brain-node", "join"), True, 60.0, "/etc/brain-node/token"),
        ),
        ("brain-node-user.service", UnitSpec(("/usr/bin/env", "brain-node", "join"), False, 60.0)),
    ],
)
def test_the_packaged_units_are_the_ones_that_install_writes(name, spec):
    packaged = (ROOT / "packaging" / "systemd" / name).read_text()
    assert packaged.splitlines()[1:] == unit_text(spec).splitlines()[1:]
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(packaged)
    assert parser.sections() == ["Unit", "Service", "Install"]


def test_installing_for_a_user(run, systemctl, tmp_path):
    (tmp_path / "token").write_text("NODE-TESTSECRET")
    result = run("service", "install", "https://c.example", "--model", "auto", "--token-file", str(tmp_path / "token"))
    assert result.exit_code == OK, result.stderr
    text = (tmp_path / "config" / "systemd" / "user" / "brain-node.service").read_text()
    assert f"join https://c.example --model auto --token-file {tmp_path / 'token'}" in text
    assert "TESTSECRET" not in text
    assert systemctl.read_text().splitlines() == ["--user daemon-reload", "--user enable --now brain-node.service"]
    assert "enable-linger" in result.stdout


def test_uninstalling_keeps_the_identity(run, systemctl, tmp_path, data_dir):
    (data_dir / "node.key").write_text("key")
    run("service", "install", "https://c.example", "--no-start")
    assert systemctl.read_text().splitlines()[-1] == "--user enable brain-node.service"
    assert run("service", "uninstall").exit_code == OK
    assert systemctl.read_text().splitlines()[-2:] == [
        "--user disable --now brain-node.service",
        "--user daemon-reload",
    ]
    assert not (tmp_path / "config" / "systemd" / "user" / "brain-node.service").exists()
    assert (data_dir / "node.key").exists()
    assert run("service", "uninstall").exit_code == UNAVAILABLE


def test_a_system_unit_gets_its_token_as_a_credential(run, tmp_path):
    (tmp_path / "token").write_text("NODE-TESTSECRET")
    result = run(
        "service", "install", "--system", "--dry-run", "https://c.example", "--token-file", str(tmp_path / "token")
    )
    assert f"LoadCredential=token:{tmp_path / 'token'}" in result.stdout
    assert "--token-file ${CREDENTIALS_DIRECTORY}/token" in result.stdout
    assert result.stdout.count("--token-file") == 1


def test_a_unit_starts_without_its_token_file(tmp_path):
    fields = service_section(unit_text(UnitSpec(("join",), True, 60.0, "/etc/100%/token")))
    assert ("LoadCredential", "token:/etc/100%%/token") in fields
    assert ("SetCredential", "token:\\n") in fields  # an empty value would be no value, by systemd's syntax


def test_a_token_file_named_in_this_shell_is_the_services_too(run, tmp_path, monkeypatch):
    (tmp_path / "token").write_text("NODE-TESTSECRET")
    (tmp_path / "token").chmod(0o600)
    monkeypatch.setenv("BRAIN_NODE_TOKEN_FILE", str(tmp_path / "token"))
    result = run("service", "install", "--dry-run", "https://c.example")
    assert f"--token-file {tmp_path / 'token'}" in result.stdout
    assert result.stderr == ""


def test_what_is_odd_about_the_settings_is_told_before_it_is_installed(run, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "node.key").touch()
    monkeypatch.setenv("BRAIN_NODE_SLOT", "3")
    result = run("service", "install", "--dry-run", "https://c.example", "--token-file", str(tmp_path / "no-such-file"))
    assert [line[:30] for line in result.stderr.splitlines()] == [
        "warning: the token file " + str(tmp_path)[:6],
        "warning: environment BRAIN_NOD",
    ]


def test_what_was_said_in_this_shell_and_this_folder_holds_for_the_service_too(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in {"URL": "https://c.example", "REGION": "eu west", "MODELS": "a/b,c/d"}.items():
        monkeypatch.setenv(f"BRAIN_NODE_{name}", value)
    words = (
        "--ca-file",
        "ca.pem",
        "--slots",
        "4",
        "--ask",
        "0.25",
        "--engine",
        "attach",
        "--serve",
        "a/b=x",
        "--serve",
        "c/d=y",
        "--json",
    )
    for scope in ((), ("--system",)):
        result = run("service", "install", "--dry-run", *scope, *words)
        (line,) = (line for line in result.stdout.splitlines() if line.startswith("ExecStart="))
        said = line.partition(" join ")[2].split(" --data-dir ")[0]
        assert said == (
            'https://c.example --model a/b --model c/d --slots 4 --region "eu west" --ask 0.25 --engine attach '
            f"--serve a/b=x --serve c/d=y "
            f"--ca-file {tmp_path / 'ca.pem'} --json"
        )


@pytest.mark.case("D-10")
def test_a_secret_in_this_shells_environment_is_said_to_stay_there(run, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "HUB-TESTSECRET")
    result = run("service", "install", "--dry-run", "https://c.example")
    assert "HF_TOKEN" in result.stderr
    assert "config.toml" in result.stderr
    assert "TESTSECRET" not in result.stdout + result.stderr


@pytest.mark.case("D-10")
def test_a_token_in_this_shells_environment_is_not_taken_for_the_services(run, systemctl, monkeypatch):
    monkeypatch.setenv("BRAIN_NODE_TOKEN", "NODE-TESTSECRET")
    result = run("service", "install", "https://c.example")
    assert result.exit_code == USAGE
    assert "--token-file" in result.stderr
    assert systemctl.read_text() == ""


@pytest.mark.parametrize("words", [("--bogus",), ("a", "b")])
def test_what_join_would_not_take_is_not_installed(run, systemctl, words):
    assert run("service", "install", "https://c.example", *words).exit_code == USAGE
    assert systemctl.read_text() == ""


def test_a_failing_systemctl_is_one_line(run, systemctl, tmp_path):
    (tmp_path / "fail").touch()
    result = run("service", "install", "https://c.example")
    assert result.exit_code == TEMPORARY
    assert "no bus" in result.stderr


def test_without_systemd_the_command_to_run_by_hand_is_shown(run, systemctl, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    result = run("service", "install", "https://c.example")
    assert result.exit_code == UNAVAILABLE
    assert "systemctl --user daemon-reload" in result.stderr
