"""Units, container files and the compose file: parsed, and held to what they promise."""

import configparser
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from brain_coord.config.load import load

PACKAGING = Path("packaging")
DOCKERFILES = sorted((PACKAGING / "docker").glob("*.Dockerfile"))
INSTRUCTIONS = {
    "FROM", "RUN", "CMD", "LABEL", "EXPOSE", "ENV", "ADD", "COPY", "ENTRYPOINT", "VOLUME", "USER", "WORKDIR", "ARG",
    "STOPSIGNAL", "HEALTHCHECK", "SHELL",
}  # fmt: skip


def instructions(path: Path) -> list[tuple[str, str]]:
    """Each instruction of a Dockerfile with its arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = [line.strip().split(None, 1) for line in text.splitlines() if line.strip()]
    return [(name, rest) for name, rest in found]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_a_container_is_slim_and_runs_without_root(path: Path):
    lines = instructions(path)
    assert {name for name, _ in lines} <= INSTRUCTIONS
    assert all(rest.startswith("python:3.11-slim") for name, rest in lines if name == "FROM")
    last = [name for name, _ in lines].index("FROM", 1)
    stage = lines[last:]
    users = [rest for name, rest in stage if name == "USER"]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", users[-1])
    after = stage[[name for name, _ in stage].index("USER") :]
    assert "RUN" not in {name for name, _ in after}  # nothing is changed as that user
    for name, rest in lines:
        if name in ("CMD", "ENTRYPOINT"):
            assert isinstance(json.loads(rest), list), "a shell would swallow SIGTERM"
        if name == "RUN":
            assert "sudo" not in rest
            assert "curl" not in rest
            if "apt-get install" in rest:
                assert "--no-install-recommends" in rest
                assert "rm -rf /var/lib/apt/lists/*" in rest
            if "pip install" in rest:
                assert "--no-cache-dir" in rest
        if name == "COPY" and "--from" not in rest:
            for source in shlex.split(rest)[:-1]:
                assert Path(source).exists(), source
    assert dict(stage)["STOPSIGNAL"] == "SIGTERM"
    assert "HEALTHCHECK" in dict(stage)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_a_build_sees_the_sources_and_nothing_else(path: Path):
    ignored = (path.parent / f"{path.name}.dockerignore").read_text().splitlines()
    assert ignored[0] == "**"
    kept = {line[1:].removesuffix("/**") for line in ignored if line.startswith("!")}
    copied = {
        source.removeprefix("./")
        for name, rest in instructions(path)
        if name == "COPY" and "--from" not in rest
        for source in shlex.split(rest)[:-1]
    }
    assert copied == kept


@pytest.fixture
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((PACKAGING / "compose" / "compose.yml").read_text()))


def test_the_compose_file_holds_together(compose: dict[str, Any]):
    services = compose["services"]
    assert set(services) == {"coordinator", "postgres", "prometheus", "grafana"}
    folder = PACKAGING / "compose"
    volumes = set(compose["volumes"])
    for name, service in services.items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source in volumes or (folder / source).exists(), (name, mount)
        for other in service.get("depends_on", []):
            assert other in services
            if isinstance(service["depends_on"], dict):
                assert "healthcheck" in services[other], other
        for secret in service.get("secrets", []):
            assert secret in compose["secrets"]
        for published in service.get("ports", []):
            assert published.startswith("127.0.0.1:"), "nothing is open to the network before TLS stands in front"
        assert not [
            value for value in str(service).split() if re.search(r"password['\"]?[:=] ?['\"]?[a-z0-9]{6,}", value)
        ]
    build = services["coordinator"]["build"]
    assert (folder / build["context"] / build["dockerfile"]).is_file()


@pytest.fixture
def cluster() -> dict[str, Any]:
    return dict(yaml.safe_load((PACKAGING / "compose" / "cluster.yml").read_text()))


def test_the_cluster_file_makes_three_coordinators_of_one(
    compose: dict[str, Any], cluster: dict[str, Any], tmp_path: Path
):
    services = cluster["services"]
    replicas = [name for name in services if name.startswith("coordinator")]
    assert len(replicas) == 3
    names = set()
    for name in replicas:
        environment = {**compose["services"]["coordinator"]["environment"], **services[name]["environment"]}
        assert environment["BRAIN_COORD_CLUSTER_ADDRESS"] == f"http://{name}:8470"
        names.add(environment["BRAIN_COORD_CLUSTER_NAME"])
        for variable in ("STORE_URL_FILE", "CLUSTER_SECRET_FILE"):
            file = tmp_path / variable
            file.write_text("postgresql://db/brain" if variable.startswith("STORE") else "s" * 48)
            environment[f"BRAIN_COORD_{variable}"] = str(file)
        loaded = load(tmp_path, environ=environment)
        assert loaded.settings.cluster is not None
        assert set(services[name]["secrets"]) <= {*compose["secrets"], *cluster["secrets"]}
        if name != "coordinator":
            hardened = compose["services"]["coordinator"]
            for setting in ("command", "read_only", "cap_drop", "security_opt", "ulimits", "stop_grace_period"):
                assert services[name][setting] == hardened[setting]
            assert services[name]["volumes"] == [f"{name}:/var/lib/brain-coord"], "a key and a chain of its own"
            assert name in cluster["volumes"]
            assert "ports" not in services[name]
        needed = {**compose["services"]["coordinator"]["depends_on"], **services[name].get("depends_on", {})}
        assert set(needed) == {"postgres", "redis"}
    assert names == {"a", "b", "c"}
    assert "healthcheck" in services["redis"]
    assert all(port.startswith("127.0.0.1:") for port in services["balancer"]["ports"])


def test_the_balancer_knows_every_coordinator_and_is_good_caddy(cluster: dict[str, Any], tmp_path: Path):
    file = PACKAGING / "caddy" / "cluster.Caddyfile"
    home = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(
        ["caddy", "adapt", "--config", str(file), "--adapter", "caddyfile", "--validate"],
        capture_output=True,
        text=True,
        env=home,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in cluster["services"]:
        if name.startswith("coordinator"):
            assert done.stdout.count(f'"{name}:8470"') == 2


def test_what_the_containers_are_told_by_their_environment_is_something_they_know():
    readme = Path("README.md").read_text()
    files = [*DOCKERFILES, *sorted((PACKAGING / "compose").glob("*.yml"))]
    used = {name for path in files for name in re.findall(r"\bBRAIN_[A-Z_]+[A-Z]\b", path.read_text())}
    assert {"BRAIN_COORD_STORE_URL_FILE", "BRAIN_NODE_DATA_DIR"} <= used
    assert {name for name in used if f"`{name}`" not in readme and f"{name}=" not in readme} == set()


def test_the_secrets_of_the_compose_file_are_made_once_and_kept(
    compose: dict[str, Any], cluster: dict[str, Any], tmp_path: Path
):
    script = tmp_path / "secrets"
    script.write_bytes((PACKAGING / "compose" / "secrets").read_bytes())
    script.chmod(0o755)
    made = []
    for _ in range(2):
        subprocess.run([str(script)], check=True, capture_output=True)
        made.append({path.name: path.read_text() for path in (tmp_path / "secrets.d").iterdir()})
    assert made[0] == made[1]
    everything = {**compose["secrets"], **cluster["secrets"]}
    assert set(made[0]) == {Path(each["file"]).name for each in everything.values()}
    assert made[0]["postgres_password"] in made[0]["database_url"]
    assert len(made[0]["grafana_password"]) == 48


def test_grafana_finds_the_dashboard_and_the_data_source():
    folder = PACKAGING / "compose" / "grafana"
    provider = yaml.safe_load((folder / "dashboards" / "brain.yml").read_text())["providers"][0]
    compose = (PACKAGING / "compose" / "compose.yml").read_text()
    assert f"../grafana:{provider['options']['path']}:ro" in compose
    dashboard = json.loads((PACKAGING / "grafana" / "brain-coordinator.json").read_text())
    kinds = {panel["type"] for panel in dashboard["panels"]}
    assert kinds == {"row", "stat", "timeseries"}
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


class Unit(configparser.RawConfigParser):
    """A systemd unit; of repeated names the last counts."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit(name: str) -> Unit:
    parsed = Unit(strict=False, comment_prefixes=("#",), delimiters=("=",), interpolation=None)
    parsed.read_string((PACKAGING / "systemd" / name).read_text())
    return parsed


def test_the_coordinators_unit_is_hardened_and_stops_by_draining():
    service = unit("brain-coord.service")["Service"]
    for name in (
        "NoNewPrivileges",
        "PrivateDevices",
        "PrivateTmp",
        "ProtectHome",
        "RemoveIPC",
        "MemoryDenyWriteExecute",
    ):
        assert service[name] == "yes", name
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["User"] == "brain-coord"
    assert "DynamicUser" not in service  # its folder would be out of reach of `brain-coord key create` and the like
    assert service["UMask"] == "0077"
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > 30  # longer than the streams get
    assert "78" in service["RestartPreventExitStatus"].split()


def test_no_unit_has_a_secret_in_its_command():
    for path in (PACKAGING / "systemd").glob("*.service"):
        command = unit(path.name)["Service"]["ExecStart"]
        assert not re.search(r"--token[ =]|bt-|bk-|password", command), path


def test_what_the_coordinators_unit_starts_exists():
    words = shlex.split(unit("brain-coord.service")["Service"]["ExecStart"])
    helped = subprocess.run(
        [
            ".venv/bin/python" if Path(".venv/bin/python").exists() else "python3",
            "-m",
            "brain_coord",
            words[1],
            "--help",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    for word in words[2:]:
        if word.startswith("--"):
            assert word in helped.stdout
