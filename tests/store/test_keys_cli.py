"""`brain-coord key`, `token` and `keys`: what is created is shown once, what is listed is never a secret."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from brain_coord.cli import build
from brain_coord.cli.keys import key_app
from brain_coord.cli.signing import keys_app
from brain_coord.cli.tokens import token_app
from brain_coord.receipts.history import trusted_keys
from brain_coord.store import api_keys, join_tokens
from brain_coord.store.session import session
from brain_coord.store.store import Store
from tests.support.coordinator import brain_coord
from tests.support.receipts import draft

runner = CliRunner()


@pytest.fixture
def call(data_dir):
    def called(app, *arguments, code=0):
        result = runner.invoke(app, [*arguments, "--data-dir", str(data_dir)])
        assert result.exit_code == code, result.output
        return result

    return called


def answer(result):
    return json.loads(result.stdout)


def test_a_created_key_is_in_the_store(call, data_dir):
    made = answer(call(key_app, "create", "--plan", "paid", "--label", "lab", "--json"))
    assert set(made) == {"key", "id", "plan", "label"}
    with session(data_dir) as connection:
        assert api_keys.find_key(connection, made["key"]).key_id == made["id"]


def test_without_json_standard_output_holds_the_key_alone(call):
    result = call(key_app, "create")
    assert result.stdout.startswith("bk-")
    assert result.stdout.count("\n") == 1
    assert "shown this once" in result.stderr


def test_listing_and_revoking_keys(call):
    made = answer(call(key_app, "create", "--json"))
    (listed,) = answer(call(key_app, "list", "--json"))
    assert (listed["id"], listed["plan"], listed["revoked"]) == (made["id"], "free", None)
    assert made["key"] not in json.dumps(listed)
    assert answer(call(key_app, "revoke", made["id"], "--json")) == {"id": made["id"], "revoked": True}
    assert answer(call(key_app, "list", "--json"))[0]["revoked"]
    assert "no_such_key" in call(key_app, "revoke", made["id"], code=2).stderr


def test_a_plan_of_another_name_is_a_usage_error(call):
    call(key_app, "create", "--plan", "gold", code=2)


def test_a_created_token_admits_nodes_as_told(call, data_dir):
    made = answer(call(token_app, "create", "--operator", "--uses", "1", "--ttl", "7d", "--json"))
    assert made["token"].startswith("bt-")
    with session(data_dir) as connection:
        (token,) = join_tokens.list_tokens(connection)
    assert (token.operator, token.uses_left) == (True, 1)
    assert token.expires_s - token.created_s == 7 * 86_400


@pytest.mark.parametrize(("ttl", "seconds"), [("90s", 90), ("30m", 1800), ("12h", 43_200), ("2w", 1_209_600)])
def test_lengths_of_time(call, data_dir, ttl, seconds):
    call(token_app, "create", "--ttl", ttl)
    with session(data_dir) as connection:
        (token,) = join_tokens.list_tokens(connection)
    assert token.expires_s - token.created_s == seconds


@pytest.mark.parametrize("ttl", ["7", "d", "-1d", "0d", "1y", "1.5h", ""])
def test_what_is_no_length_of_time_is_a_usage_error(call, ttl):
    call(token_app, "create", "--ttl", ttl, code=2)


def test_listing_and_revoking_tokens(call):
    made = answer(call(token_app, "create", "--json"))
    (listed,) = answer(call(token_app, "list", "--json"))
    assert {name: made[name] for name in listed} == listed
    assert made["token"] not in call(token_app, "list").stdout
    call(token_app, "revoke", made["id"])
    call(token_app, "revoke", made["id"], code=2)


def test_a_list_off_a_terminal_is_plain_lines_that_are_never_cut(call):
    call(token_app, "create", "--label", "a label as long as it gets\n" * 10)
    head, line = call(token_app, "list").stdout.splitlines()
    assert head.split("\t")[0] == "id"
    assert len(line.split("\t")) == len(head.split("\t"))
    assert "\x1b" not in line


@pytest.mark.parametrize("app", [key_app, token_app, keys_app])
def test_an_empty_list_is_an_empty_list(call, app):
    assert answer(call(app, "list", "--json")) == []
    result = call(app, "list")
    assert (result.stdout, result.stderr.startswith("no ")) == ("", True)


async def first_receipt(data_dir):
    store = await Store.open(data_dir)
    await store.append_receipt(draft(1))
    await store.close()


def test_signing_keys_are_made_rotated_and_published(call, data_dir):
    assert "signing_key_missing" in call(keys_app, "rotate", code=78).stderr
    begun = answer(call(keys_app, "new-chain", "--json"))
    assert "chain_not_begun" in call(keys_app, "rotate", code=78).stderr
    asyncio.run(first_receipt(data_dir))
    turned = answer(call(keys_app, "rotate", "--json"))
    assert turned["endorsed_by"] == begun["key_id"] == begun["chain"] == turned["chain"]
    (history,) = answer(call(keys_app, "list", "--json"))
    assert set(trusted_keys(history)) == {begun["key_id"], turned["key_id"]}
    assert begun["chain"] in call(keys_app, "list").stdout
    assert "signing_key_exists" in call(keys_app, "new-chain", code=78).stderr


@pytest.mark.parametrize("typed", [("key", "create", "--label"), ("token", "revoke"), ("receipts", "show")])
def test_what_is_no_text_in_utf8_is_a_usage_error(data_dir, typed):
    said = brain_coord(*typed, "caf\udce9", "--data-dir", str(data_dir))
    assert said.returncode == 2
    assert said.stderr.startswith("error [not_utf8]: ")
    assert "Traceback" not in said.stderr


def test_a_store_that_cannot_be_opened_is_an_error_without_a_traceback(tmp_path):
    (tmp_path / "file").write_text("")
    result = runner.invoke(key_app, ["list", "--data-dir", str(tmp_path / "file")])
    assert result.exit_code == 78
    assert "error [data_dir]" in result.stderr
    assert "next:" in result.stderr


def test_a_database_that_is_away_may_be_there_later(call, monkeypatch, tmp_path):
    monkeypatch.setenv("BRAIN_COORD_DATABASE_URL", f"postgresql://brain:geheim@/x?host={tmp_path}")
    result = call(key_app, "list", code=75)
    assert "database_down" in result.stderr
    assert "geheim" not in result.output


def test_the_data_folder_may_come_from_the_environment(monkeypatch, data_dir):
    monkeypatch.setenv("BRAIN_COORD_DATA_DIR", str(data_dir))
    assert runner.invoke(key_app, ["create"]).exit_code == 0
    assert (data_dir / "coord.db").exists()


def test_a_mistyped_variable_is_told_before_a_key_goes_into_another_store(data_dir, monkeypatch):
    monkeypatch.setenv("BRAIN_COORD_DATADIR", "/srv/coord")
    result = runner.invoke(build(["key"]), ["key", "list", "--json", "--data-dir", str(data_dir)])
    assert answer(result) == []
    assert result.stderr.splitlines() == [
        "warning: environment BRAIN_COORD_DATADIR sets nothing. Did you mean BRAIN_COORD_DATA_DIR?"
    ]
