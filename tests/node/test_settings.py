"""Settings: flag over environment over file over default, and no secret shown."""

import inspect
import stat
from pathlib import Path

import pytest
from typer.main import get_command

from brain_node.cli import app
from brain_node.cli.join import join
from brain_node.exit_codes import CONFIG, USAGE
from brain_node.settings import FIELDS, SettingsError, resolve

pytestmark = pytest.mark.case("F-05")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return folder


def write(folder, text):
    (folder / "config.toml").write_text(text)
    (folder / "config.toml").chmod(0o600)


def test_flag_beats_environment_beats_file_beats_default(folder):
    write(folder, 'url = "http://file"\nregion = "file"\nengine = "mock"\n')
    environ = {"BRAIN_NODE_URL": "http://environment", "BRAIN_NODE_REGION": "environment"}
    settings = resolve({"url": "http://flag"}, environ, folder)
    assert (settings.url, settings.region, settings.engine, settings.slots) == (
        "http://flag",
        "environment",
        "mock",
        None,
    )
    assert settings.sources["url"] == "flag URL"
    assert settings.sources["region"] == "environment BRAIN_NODE_REGION"
    assert settings.sources["engine"] == f"file {folder / 'config.toml'}"
    assert settings.sources["slots"] == "default"


@pytest.mark.parametrize("empty", ["", "   "])
def test_empty_is_unset(folder, empty):
    write(folder, 'url = "http://file"\n')
    settings = resolve({"url": empty}, {"BRAIN_NODE_URL": empty, "BRAIN_NODE_MODELS": empty}, folder)
    assert settings.url == "http://file"
    assert settings.models == ()


def test_the_token_follows_the_same_order(folder, tmp_path):
    write(folder, 'token = "FILE-TESTSECRET"\n')
    path = tmp_path / "token"
    path.write_text("FLAG-TESTSECRET\n")
    path.chmod(0o600)
    assert resolve({}, {}, folder).token == "FILE-TESTSECRET"
    environ = {"BRAIN_NODE_TOKEN": "ENVIRONMENT-TESTSECRET"}
    assert resolve({}, environ, folder).token == "ENVIRONMENT-TESTSECRET"
    settings = resolve({"token_file": path}, environ, folder)
    assert settings.token == "FLAG-TESTSECRET"
    assert settings.sources["token"] == f"flag --token-file ({path})"


def test_a_token_in_the_environment_beats_a_token_file_named_in_the_file(folder, tmp_path):
    path = tmp_path / "token"
    path.write_text("OTHER")
    path.chmod(0o600)
    write(folder, f'token_file = "{path}"\n')
    assert resolve({}, {}, folder).token == "OTHER"
    assert resolve({}, {"BRAIN_NODE_TOKEN": "MINE"}, folder).token == "MINE"


def test_a_dotenv_in_the_working_directory_is_not_read(folder, tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("BRAIN_NODE_URL=http://dotenv\n")
    monkeypatch.chdir(tmp_path)
    assert resolve({}, {}, folder).url is None


@pytest.mark.case("D-10")
def test_secrets_are_shown_as_set_only(folder):
    environ = {
        "BRAIN_NODE_TOKEN": "NODE-TESTSECRET",
        "HF_TOKEN": "HUB-TESTSECRET",
        "BRAIN_NODE_ENGINE_KEY": "E-TESTSECRET",
    }
    settings = resolve({}, environ, folder)
    assert "TESTSECRET" not in str(settings.shown()) + repr(settings)
    assert settings.shown()["hf_token"] == {"value": "set", "source": "environment HF_TOKEN"}


def test_every_setting_is_shown_with_its_source(folder):
    shown = resolve({}, {}, folder).shown()
    assert set(shown) == {"data_dir"} | {each.name for each in FIELDS}


@pytest.mark.case("D-10")
def test_no_secret_has_a_flag():
    assert all(each.flag is None for each in FIELDS if each.secret)


@pytest.mark.case("F-03")
def test_loose_files_with_secrets_are_tightened_with_a_warning(folder, tmp_path):
    token = tmp_path / "token"
    token.write_text("NODE-TESTSECRET")
    token.chmod(0o644)
    write(folder, 'hf_token = "HUB-TESTSECRET"\n')
    (folder / "config.toml").chmod(0o644)
    settings = resolve({"token_file": token}, {}, folder)
    for path in (token, folder / "config.toml"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(settings.warnings) == 2
    assert "TESTSECRET" not in str(settings.warnings)


def test_a_file_without_secrets_keeps_its_permissions(folder):
    write(folder, 'region = "eu"\n')
    (folder / "config.toml").chmod(0o644)
    assert resolve({}, {}, folder).warnings == ()
    assert stat.S_IMODE((folder / "config.toml").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("regoin = 'x'", "did you mean `region`"),
        ("zzz = 1", "no setting `zzz`"),
        ("url = ", "cannot read"),
        ("slots = 'many'", "whole number|a number"),
        ("slots = 0", "whole number"),
        ("context = 0", "whole number of tokens"),
        ("engine = 'sglang'", "one of vllm, attach, mock"),
        ("models = 3", "list of texts"),
        ("region = 3", "a text"),
        ("ask_usd_per_1m = -1", "from 0 upward"),
        ("ask_usd_per_1m = nan", "from 0 upward"),
        ("log_json = 'maybe'", "true or false"),
        ("serve = ['x']", "ID=SERVED_NAME"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_clear_error(folder, text, words):
    write(folder, text)
    with pytest.raises(SettingsError) as caught:
        resolve({}, {}, folder)
    assert caught.value.exit_code == CONFIG
    assert any(word in caught.value.message + caught.value.next_step for word in words.split("|"))


def test_a_bad_flag_is_a_usage_error_and_a_bad_variable_is_not(folder):
    with pytest.raises(SettingsError) as flag:
        resolve({"slots": "x"}, {}, folder)
    with pytest.raises(SettingsError) as variable:
        resolve({}, {"BRAIN_NODE_SLOTS": "x"}, folder)
    assert (flag.value.exit_code, variable.value.exit_code) == (USAGE, CONFIG)
    assert "--slots" in flag.value.message
    assert "BRAIN_NODE_SLOTS" in variable.value.message


def test_a_node_that_has_joined_needs_no_token_file_any_more(folder, tmp_path):
    (folder / "node.key").touch()
    settings = resolve({"token_file": tmp_path / "no-such-file"}, {}, folder)
    assert settings.token is None
    assert "no-such-file is gone" in settings.warnings[0]


def test_an_empty_token_file_is_none(folder, tmp_path):
    path = tmp_path / "token"
    path.write_text("\n")
    path.chmod(0o600)
    assert resolve({"token_file": path}, {}, folder).token is None
    write(folder, 'token = "FILE-TESTSECRET"\n')
    settings = resolve({"token_file": path}, {}, folder)
    assert settings.token == "FILE-TESTSECRET"
    assert settings.sources["token"] == f"file {folder / 'config.toml'}"


def test_a_missing_token_file_is_named(folder, tmp_path):
    with pytest.raises(SettingsError, match="no-such-file"):
        resolve({"token_file": tmp_path / "no-such-file"}, {}, folder)


@pytest.mark.parametrize("text", ["x" * 257, "first\nsecond", "a b", "–token–"])
def test_a_file_that_holds_no_join_token_is_named_before_anything_is_sent(folder, tmp_path, text):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SettingsError) as caught:
        resolve({"token_file": path}, {}, folder)
    assert str(path) in caught.value.message
    assert text not in caught.value.message
    with pytest.raises(SettingsError):
        resolve({}, {"BRAIN_NODE_TOKEN": text}, folder)


def test_the_home_of_nobody_is_a_plain_error(folder):
    for flag, environ in ((Path("~no-such-user/x"), {}), (None, {"BRAIN_NODE_DATA_DIR": "~no-such-user/x"})):
        with pytest.raises(SettingsError) as caught:
            resolve({}, environ, flag)
        assert "~no-such-user" in caught.value.message
    with pytest.raises(SettingsError):
        resolve({}, {"BRAIN_NODE_CA_FILE": "~no-such-user/ca.pem"}, folder)


def test_a_folder_whose_name_is_no_text_is_a_plain_error():
    with pytest.raises(SettingsError) as caught:
        resolve({}, {"BRAIN_NODE_DATA_DIR": "/tmp/\udcff"}, None)
    assert caught.value.message.isascii()


def test_lists_come_from_flags_commas_and_toml(folder):
    write(folder, 'models = ["a", "b"]\n')
    assert resolve({}, {}, folder).models == ("a", "b")
    assert resolve({}, {"BRAIN_NODE_MODELS": "c, d,"}, folder).models == ("c", "d")
    assert resolve({"models": ["e"]}, {"BRAIN_NODE_MODELS": "c"}, folder).models == ("e",)
    assert resolve({"engine": "attach", "serve": ["x/y=z=1"]}, {}, folder).serve == (("x/y", "z=1"),)


ATTACH = {"engine": "attach", "engine_url": "http://127.0.0.1:8000", "serve": ["a/b=x"]}


@pytest.mark.parametrize(
    ("flags", "words", "step"),
    [
        ({"engine_url": "http://127.0.0.1:8000"}, "flag --engine-url .* the engine is vllm", "--engine attach"),
        ({"serve": ["a/b=x"], "engine": "mock"}, "flag --serve .* the engine is mock", "--engine attach"),
        ({**ATTACH, "context": "4096"}, "flag --context .* the engine is attach", "--engine vllm"),
        ({**ATTACH, "models": ["a/b", "c/d"]}, "flag --model .* c/d", "--serve c/d=NAME"),
    ],
)
def test_a_flag_that_would_change_nothing_is_an_error_with_what_was_meant(folder, flags, words, step):
    with pytest.raises(SettingsError, match=words) as caught:
        resolve(flags, {}, folder)
    assert caught.value.exit_code == USAGE
    assert step in caught.value.next_step


def test_what_changes_nothing_in_the_environment_or_the_file_is_told_and_taken_out(folder):
    write(folder, 'engine_key = "SERVER-TESTSECRET"\nengine_url = "http://127.0.0.1:8000"\nserve = ["a/b=x"]\n')
    settings = resolve({"engine": "mock"}, {"BRAIN_NODE_CONTEXT": "4096"}, folder)
    told = " ".join(settings.warnings)
    assert all(f"`{name}` is for" in told for name in ("engine_url", "engine_key", "serve", "context"))
    assert "TESTSECRET" not in told
    assert (settings.engine_url, settings.engine_key, settings.serve, settings.context) == (None, None, (), None)
    assert settings.sources["serve"] == settings.sources["context"] == "default"
    attached = resolve({"engine": "attach"}, {"BRAIN_NODE_MODELS": "a/b,c/d"}, folder)
    assert (attached.models, attached.serve, attached.engine_key) == (("a/b",), (("a/b", "x"),), "SERVER-TESTSECRET")
    assert "c/d is not among" in " ".join(attached.warnings)


def test_a_model_that_is_served_under_two_names_is_an_error(folder):
    with pytest.raises(SettingsError, match="a/b has two"):
        resolve({**ATTACH, "serve": ["a/b=x", "a/b=y"]}, {}, folder)


def test_the_data_folder_has_a_source_too(tmp_path):
    environ = {"BRAIN_NODE_DATA_DIR": str(tmp_path / "b")}
    assert resolve({}, environ, tmp_path / "a").data_dir == tmp_path / "a"
    assert resolve({}, environ).sources["data_dir"] == "environment BRAIN_NODE_DATA_DIR"


@pytest.mark.parametrize("region", ["x" * 65, "two\nlines"])
def test_a_region_that_coordinators_would_drop_is_refused(folder, region):
    with pytest.raises(SettingsError, match="printable"):
        resolve({"region": region}, {}, folder)


def test_every_flag_of_a_setting_is_one_that_join_has():
    options = get_command(app).commands["join"].params
    names = {name for option in options for name in option.opts}
    assert {each.flag for each in FIELDS if each.flag and each.flag.startswith("--")} <= names
    helps = " ".join(option.help or "" for option in options)
    assert [each.variable for each in FIELDS if each.flag and each.variable not in helps] == []


def test_join_hands_every_flag_to_the_settings_under_its_own_name():
    source = inspect.getsource(join)
    assert all(f'"{each.name}":' in source for each in FIELDS if each.flag)
