"""The configuration: where values come from, what is said of wrong ones, and the example that documents every key."""

import json
import re
import stat
from pathlib import Path

import pytest

from brain_coord.classes.prices import Prices
from brain_coord.config.faults import ConfigError
from brain_coord.config.load import load, variables
from brain_coord.config.tables import Config
from brain_coord.routing.vocabulary import CommunityFirst, Plan
from brain_coord.settings import Settings, restart_needed
from tests.support.coordinator import brain_coord

EXAMPLE = Path(__file__).parent.parent / "packaging" / "coord" / "config.example.toml"


def read(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, **flags: object):
    file = tmp_path / "config.toml"
    file.write_text(text)
    given = {("server", name): (f"flag --{name}", value) for name, value in flags.items()}
    return load(tmp_path, flags=given, environ=environ or {})


def faults(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, **flags: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, environ, **flags)
    file = str(tmp_path / "config.toml")
    return [str(fault).replace(f"file {file}: ", "") for fault in caught.value.faults]


def upstream(**keys: object) -> str:
    lines = {"name": "rack", "url": "http://10.0.0.5:8000", "models": ["m"], **keys}
    return "[[cloud]]\n" + "\n".join(f"{name} = {json.dumps(value)}" for name, value in lines.items())


def test_without_file_and_environment_everything_has_its_default(tmp_path):
    loaded = load(tmp_path, environ={})
    assert loaded.settings == Settings(data_dir=tmp_path)
    assert loaded.file is None
    assert loaded.sources == {}


@pytest.mark.case("F-05")
def test_flag_beats_environment_beats_file_beats_default(tmp_path):
    text = '[server]\nhost = "10.0.0.1"\nport = 1\ndrain_s = 1\n[queue]\nwait_s = 1\n'
    environ = {
        "BRAIN_COORD_SERVER_PORT": "2",
        "BRAIN_COORD_SERVER_DRAIN_S": "2",
        "BRAIN_COORD_SERVER_HOST": "",
        "BRAIN_COMMUNITY_FIRST": "off",
        "BRAIN_COORD_PLANS_FREE_CONCURRENT": "7",
        "BRAIN_COORD_SERVER_TRUSTED_PROXIES": "10.0.0.1, 10.0.0.2",
    }
    loaded = read(tmp_path, text, environ, drain_s=3.0)
    settings = loaded.settings
    assert settings.host == "10.0.0.1"  # an empty variable is an unset one
    assert settings.port == 2
    assert settings.drain_s == 3
    assert settings.gateway.queue_s == 1
    assert settings.community_first is CommunityFirst.OFF
    assert settings.plans[Plan.FREE].concurrent == 7
    assert settings.trusted_proxies == ("10.0.0.1", "10.0.0.2")
    shown = loaded.shown()
    assert shown["server"]["host"] == {"value": "10.0.0.1", "source": f"file {tmp_path / 'config.toml'}"}
    assert shown["server"]["port"]["source"] == "environment BRAIN_COORD_SERVER_PORT"
    assert shown["server"]["drain_s"]["source"] == "flag --drain_s"
    assert shown["plans"]["free"]["concurrent"] == {
        "value": 7,
        "source": "environment BRAIN_COORD_PLANS_FREE_CONCURRENT",
    }
    assert shown["plans"]["paid"]["concurrent"]["source"] == "default"


def test_every_fault_is_told_at_once_with_its_source_table_and_key(tmp_path):
    text = '[server]\nport = 99999\nprot = 1\n[routing]\ncommunity_first = "some"\n[queue]\nwait_s = "x"\n'
    environ = {"BRAIN_COORD_PLANS_PAID_CONCURRENT": "none"}
    assert set(faults(tmp_path, text, environ, host=3)) == {
        "flag --host: [server] host: must be a text (is 3)",
        "[server] port: must be at most 65535 (is 99999)",
        "[server] prot: there is no `prot` here; did you mean `port`?",
        "[routing] community_first: must be one of free, all, off (is 'some')",
        "[queue] wait_s: must be a number (is 'x')",
        "environment BRAIN_COORD_PLANS_PAID_CONCURRENT: [plans.paid] concurrent: must be a whole number (is 'none')",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 1", "there is no `port` here; the tables are server, store"),
        ("[servr]", "there is no `servr` here; did you mean `server`?"),
        ("server = 3", "[server]: must be a table"),
        ("[plans.gold]\nconcurrent = 1", "[plans.gold]: there is no `gold` here; the keys are free, paid"),
        ("[server]\nroot_path = 'brain'", "[server] root_path: must be a path such as /brain"),
        ("[server]\ncors_origins = ['app.example.com']", "[server] cors_origins: must hold origins such as https://"),
        ("[server]\ntrusted_proxies = ['proxy']", "[server] trusted_proxies: must hold addresses or networks"),
        ("[server]\ntls_cert = 'a.pem'", "[server]: tls_cert and tls_key go together; only one of them is set"),
        ("[server]\ntls_cert = 'a.pem'\ntls_key = 'b.pem'", "[server] tls_cert: there is no file "),
        ("[breaker]\nmax_open_s = 1", "[breaker]: max_open_s is less than first_open_s"),
        ("[deadlines]\nwhole_s = inf", "[deadlines] whole_s: must be a finite number (is inf)"),
        ("[deadlines]\nwhole_s = nan", "[deadlines] whole_s: must be "),
        ("[store]\nurl_file = 'db'", "[store] url_file: "),
        ("[server\n", "is not TOML: "),
        (upstream(url="ftp://x"), "[[cloud]] 1 url: must be an http:// or https:// address"),
        (upstream(url="10.0.0.5:8000"), "[[cloud]] 1 url: must be an http:// or https:// address"),
        (upstream(url="http://u:p@10.0.0.5"), "[[cloud]] 1 url: must be an address alone; a key belongs into"),
        (upstream(url="http://h/v1?key=1"), "[[cloud]] 1 url: must be an address alone; a key belongs into"),
        (upstream(models=[]), "[[cloud]] 1 models: must not be empty"),
        (upstream(models=["a", "a"]), "[[cloud]] 1 models: names a model twice"),
        (upstream(models=3), "[[cloud]] 1 models: must be a list of model names, or a table"),
        (upstream(routes=["/v1/audio"]), "[[cloud]] 1 routes: must hold some of /v1/chat/completions"),
        (upstream(quality=1.5), "[[cloud]] 1 quality: must be at most 1 (is 1.5)"),
        (upstream(api_key="sk-1"), "[[cloud]] 1 api_key: there is no `api_key` here; did you mean `api_key_"),
        (upstream(api_key_file="k"), "[[cloud]] 1 api_key_file: "),
        (upstream(api_key_env="NOT_THERE"), "[[cloud]] 1 api_key_env: the environment variable NOT_THERE is not set"),
        (upstream(api_key_env="A", api_key_file="k"), "[[cloud]] 1: api_key_file and api_key_env are both set"),
        (upstream(ca_file="ca.pem"), "[[cloud]] 1 ca_file: there is no file "),
        (
            upstream() + "\n" + upstream().replace("cloud", "external"),
            "the name rack stands for more than one upstream",
        ),
        ("[[cloud]]\nname = 'x'", "[[cloud]] 1 url: is missing"),
    ],
)
def test_what_is_wrong_is_said_in_words(tmp_path, text, message):
    told = faults(tmp_path, text)
    assert any(fault.startswith(message) for fault in told), told


@pytest.mark.case("D-10")
def test_no_fault_repeats_what_may_be_a_key(tmp_path):
    text = upstream(
        url="http://user:CLIENT-TESTSECRET@h", api_key="CLIENT-TESTSECRET", api_key_file="CLIENT-TESTSECRET" * 9
    )
    text += '\n[server]\ntls_passwort = "CLIENT-TESTSECRET"'
    told = faults(tmp_path, text)
    assert len(told) == 3
    assert "TESTSECRET" not in " ".join(told)


def test_an_upstream_is_read_with_its_key_its_names_and_its_prices(tmp_path):
    (tmp_path / "keys").mkdir()
    key = tmp_path / "keys" / "rack.key"
    key.write_text("KEY-1\n")
    key.chmod(0o644)
    text = """
[[cloud]]
name = "rack"
url = "http://10.0.0.5:8000/"
api_key_file = "keys/rack.key"
models = ["a", "b"]
completion_usd_per_1m = 3

[[external]]
name = "far"
url = "https://api.example.com/openai/"
api_key_env = "FAR_KEY"
prompt_usd_per_1m = 1
completion_usd_per_1m = 2
quality = 0.5
routes = ["/v1/chat/completions"]
[external.models]
small = "small-2026"
large = { served = "large-2026", completion_usd_per_1m = 9, quality = 0.9 }
"""
    loaded = read(tmp_path, text, {"FAR_KEY": "KEY-2"})
    rack, far = *loaded.settings.classes.cloud, *loaded.settings.classes.external
    assert (rack.base_url, rack.api_key, list(rack.offers)) == ("http://10.0.0.5:8000/v1", "KEY-1", ["a", "b"])
    assert rack.url_of("/v1/chat/completions") == "http://10.0.0.5:8000/v1/chat/completions"
    assert rack.offers["a"].prices == Prices(None, 3)
    assert far.url_of("/v1/chat/completions") == "https://api.example.com/openai/chat/completions"
    assert far.api_key == "KEY-2"
    assert far.offers["small"].served == "small-2026"
    assert far.offers["small"].prices == Prices(1, 2)
    assert (far.offers["large"].prices, far.offers["large"].quality) == (Prices(1, 9), 0.9)
    assert far.routes == {"/v1/chat/completions"}
    assert "KEY-" not in repr(loaded.settings)
    assert "KEY-" not in json.dumps(loaded.shown())
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert any("permissions tightened" in warning for warning in loaded.warnings)


def test_a_variable_that_sets_nothing_is_mentioned(tmp_path):
    environ = {"BRAIN_COORD_QUEUE_WAITS": "3", "BRAIN_COORD_PORT": "tcp://10.0.0.1:8470", "BRAIN_COORD_DATA_DIR": "/x"}
    assert read(tmp_path, environ=environ).warnings == (
        "environment BRAIN_COORD_QUEUE_WAITS sets nothing. Did you mean BRAIN_COORD_QUEUE_WAIT_S or BRAIN_COORD_QUEUE_LIMIT?",
    )


def test_every_variable_is_its_table_and_key():
    assert variables()["BRAIN_COORD_DEADLINES_FIRST_OUTPUT_S"] == ("deadlines", "first_output_s")
    assert variables()["BRAIN_COORD_LOG_JSON"] == ("log", "json")
    assert not any("CLOUD" in name or "EXTERNAL" in name for name in variables())


def test_a_named_file_must_be_there(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path, tmp_path / "other.toml", environ={})


def test_the_example_documents_every_key_and_shows_the_defaults(tmp_path):
    text = EXAMPLE.read_text()
    assert load(tmp_path, EXAMPLE, environ={}).settings == Settings(data_dir=tmp_path)  # as shipped it changes nothing

    # With every line taken in, each default is the default of the code, and nothing is left out.
    taken = re.sub(r"(?m)^#(?=[a-z\[\"])", "", text)
    for name in ("fullchain.pem", "privkey.pem", "private-ca.pem", "rack-1.key", "catalog.toml"):
        taken = taken.replace(f'"{name}"', json.dumps(str(tmp_path / name)))
        (tmp_path / name).write_text("x")
    urls = {"database-url": "postgresql://h/n", "cluster-url": "redis://127.0.0.1/0"}
    for name, content in {**urls, "cluster-secret": "s" * 32}.items():
        taken = taken.replace(f'"{name}"', json.dumps(str(tmp_path / name)))
        (tmp_path / name).write_text(content)
    taken = re.sub(r"(?m)^(ca_file|tls_cert|tls_key).*\n", "", taken)
    assert {"tls_cert", "tls_key", "ca_file"} <= set(re.findall(r"(?m)^#([a-z_]+) =", text))
    (tmp_path / "tokenizers").mkdir()
    file = tmp_path / "taken.toml"
    file.write_text(taken)
    loaded = load(tmp_path, file, environ={"EXAMPLE_API_KEY": "k"})
    shown = loaded.shown()
    for table, keys in shown.items():
        if table in ("cloud", "external"):
            continue
        for name, value in keys.items():
            if name in ("tls_cert", "tls_key", "ca_file"):
                continue
            leaves = [value] if "source" in value else value.values()
            assert all(leaf["source"] == f"file {file}" for leaf in leaves), f"[{table}] {name} is not in the example"
    differs = {
        f"{table}.{name}"
        for table, keys in shown.items()
        if table not in ("cloud", "external", "plans")
        for name, value in keys.items()
        if value["value"] != Config().model_dump(mode="json", by_alias=True)[table][name]
    }
    cluster = {"cluster.url_file", "cluster.secret_file", "cluster.name", "cluster.address"}
    assert (
        differs == {"store.url_file", "routing.catalog", "log.json", "measure.tokenizers", "tracing.otlp_url"} | cluster
    )
    assert shown["plans"]["free"]["concurrent"]["value"] == Config().plans.free.concurrent
    example_keys = set(re.findall(r"(?m)^#?([a-z_0-9]+) =", text))
    assert set(Config.model_fields["cloud"].annotation.__args__[0].model_fields) <= example_keys | {"models"}


def test_check_config_tells_faults_on_a_line_each_and_exits_with_the_config_code(tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text("[queue]\nlimit = 0\nwiat_s = 3\n")
    done = brain_coord("check-config", str(file), "--data-dir", str(tmp_path))
    assert done.returncode == 78
    assert done.stdout == ""
    assert f"error [bad_config]: file {file}: [queue] limit: must be at least 1 (is 0)" in done.stderr
    assert f"\n  file {file}: [queue] wiat_s: there is no `wiat_s` here; did you mean `wait_s`?" in done.stderr
    assert "next:" in done.stderr
    told = json.loads(brain_coord("check-config", str(file), "--data-dir", str(tmp_path), "--json").stdout)
    assert told["ok"] is False
    assert told["faults"][0] == {
        "source": f"file {file}",
        "table": "[queue]",
        "key": "limit",
        "message": "must be at least 1 (is 0)",
        "allowed": [],
    }


def test_a_database_url_that_cannot_be_read_is_a_fault_of_where_it_came_from(tmp_path):
    (tmp_path / "url").write_text("postgresql://u:in@secret@h/n")
    for text, environ, source in (
        ("[store]\nurl_file = 'url'", {}, "[store] url_file: "),
        ("", {"BRAIN_COORD_DATABASE_URL": "postgresql://u:secret@h:port/n"}, "environment BRAIN_COORD_DATABASE_URL: "),
    ):
        with pytest.raises(ConfigError) as error:
            read(tmp_path, text, environ)
        assert source + "the database URL is not understood" in error.value.message
        assert "secret" not in error.value.message


def test_check_config_takes_the_file_that_serve_would(tmp_path):
    (tmp_path / "config.toml").write_text("[queue]\nwait_s = 3\n")
    told = json.loads(brain_coord("check-config", "--data-dir", str(tmp_path), "--json").stdout)
    assert told["ok"] is True
    assert told["file"] == str(tmp_path / "config.toml")
    assert told["settings"]["queue"]["wait_s"]["value"] == 3
    shown = brain_coord("check-config", "--data-dir", str(tmp_path)).stdout
    assert "queue.wait_s" in shown


def test_check_config_shows_upstreams_as_they_are_written(tmp_path):
    """Square brackets are markup to some terminal libraries: of `[[cloud]]` and an IPv6 address nothing was left."""
    file = tmp_path / "config.toml"
    file.write_text('[[cloud]]\nname = "near"\nurl = "http://[fe80::1]:8000"\nmodels = ["m"]\n')
    shown = brain_coord("check-config", str(file), "--data-dir", str(tmp_path)).stdout
    assert f"[[cloud]] 1\tnear: http://[fe80::1]:8000/v1, 1 model(s)\tfile {file}\n" in shown


def test_what_needs_a_restart_stays_as_it_is(tmp_path):
    running = read(tmp_path).settings
    wanted = read(
        tmp_path, '[server]\nport = 1\ndrain_s = 9\n[limits]\nbody_mib = 1\n[log]\nlevel = "debug"\n'
    ).settings
    settings, names = restart_needed(running, wanted)
    assert names == ["[server] port", "[log] level", "[limits] body_mib"]
    assert (settings.port, settings.drain_s, settings.gateway.body_bytes) == (8470, 9, running.gateway.body_bytes)
