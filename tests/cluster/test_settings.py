"""The `[cluster]` table: what makes a coordinator one of several, and what is missing for it, in words."""

import pytest

from brain_coord.config.faults import ConfigError
from brain_coord.config.load import load
from brain_coord.settings import restart_needed

SECRET = "s" * 40
ENVIRON = {
    "BRAIN_COORD_CLUSTER_URL": "valkey://:hunter2@redis/0",
    "BRAIN_COORD_CLUSTER_SECRET": SECRET,
    "BRAIN_COORD_DATABASE_URL": "postgresql://db/brain",
    "BRAIN_COORD_CLUSTER_ADDRESS": "http://10.0.0.2:8470/",
}


def test_without_a_url_it_runs_alone(tmp_path):
    loaded = load(tmp_path, environ={})
    assert loaded.settings.cluster is None
    assert loaded.warnings == ()


def test_half_a_cluster_is_warned_of(tmp_path):
    loaded = load(tmp_path, environ={"BRAIN_COORD_CLUSTER_ADDRESS": "http://10.0.0.2:8470"})
    assert loaded.settings.cluster is None
    assert "it runs alone" in loaded.warnings[0]


def test_url_and_secret_come_from_the_environment_or_from_private_files(tmp_path):
    for name, text in (("url", "redis://redis/0"), ("secret", SECRET)):
        (tmp_path / name).write_text(text + "\n")
        (tmp_path / name).chmod(0o644)
    (tmp_path / "config.toml").write_text('[cluster]\nurl_file = "url"\nsecret_file = "secret"\nname = "a"\n')
    environ = {name: value for name, value in ENVIRON.items() if not name.endswith(("CLUSTER_URL", "CLUSTER_SECRET"))}
    loaded = load(tmp_path, environ=environ)
    cluster = loaded.settings.cluster
    assert (cluster.url, cluster.secret.text, cluster.name) == ("redis://redis/0", SECRET, "a")
    assert cluster.address == "http://10.0.0.2:8470"
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert load(tmp_path, environ=ENVIRON).settings.cluster.url == "redis://:hunter2@redis/0"


def test_neither_the_secret_nor_a_password_is_ever_shown(tmp_path):
    loaded = load(tmp_path, environ=ENVIRON)
    for shown in (repr(loaded.settings), str(loaded.shown())):
        assert SECRET not in shown
        assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("without", "fault"),
    [
        ("BRAIN_COORD_CLUSTER_SECRET", "[cluster] secret_file: must hold a secret of at least 32 characters"),
        ("BRAIN_COORD_CLUSTER_ADDRESS", "[cluster] address: is missing"),
        ("BRAIN_COORD_DATABASE_URL", "[store] url_file: is missing: the coordinators of a cluster share"),
    ],
)
def test_what_a_cluster_needs_is_named(tmp_path, without, fault):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, environ={name: value for name, value in ENVIRON.items() if name != without})
    assert fault in str(error.value)


@pytest.mark.parametrize("address", ["10.0.0.2:8470", "ftp://x", "http://user@host:1"])
def test_an_address_is_one_that_the_others_can_dial(tmp_path, address):
    with pytest.raises(ConfigError, match="http:// or https://"):
        load(tmp_path, environ={**ENVIRON, "BRAIN_COORD_CLUSTER_ADDRESS": address})


def test_a_cluster_does_not_change_while_the_coordinator_runs(tmp_path):
    alone = load(tmp_path, environ={}).settings
    settings, names = restart_needed(alone, load(tmp_path, environ=ENVIRON).settings)
    assert settings.cluster is None
    assert "[cluster]" in names
