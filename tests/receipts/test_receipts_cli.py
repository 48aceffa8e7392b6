"""`brain-coord receipts`: 0 when all is good, 1 naming the first bad link, 2 when there is nothing to check."""

import asyncio
import base64
import contextlib
import csv
import json
import os
import pty
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from brain_coord.cli.receipts import receipts_app
from brain_coord.receipts.history import first_key, publish
from brain_coord.receipts.signer import Signer
from brain_coord.store.store import Store
from tests.support.receipts import START_S, draft, sealed_chain

runner = CliRunner()
CHAIN, SIGNER = sealed_chain(5, batch=3)
LINES = [link.line().decode() + "\n" for link in CHAIN]
B64 = base64.b64encode(SIGNER.public_key).decode()


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "export.jsonl"
    path.write_text("".join(LINES))
    return path


def verify(*arguments, code=0, stdin=None):
    result = runner.invoke(receipts_app, ["verify", *map(str, arguments)], input=stdin)
    assert result.exit_code == code, result.output
    return result


def answer(*arguments, code=0, stdin=None):
    return json.loads(verify(*arguments, "--json", code=code, stdin=stdin).stdout)


def test_a_good_export(export):
    said = answer(export)
    assert (said["ok"], said["receipts"], said["gaps"], said["pinned"], said["bad"]) == (True, 5, 0, False, None)
    assert said["signers"] == [SIGNER.key_id]
    assert said["chains"][SIGNER.key_id]["last_seq"] == 5
    text = verify(export).stdout
    assert "good: 5 receipts" in text
    assert "--signer" in text


def test_the_first_bad_link_is_named(export):
    changed = LINES[2].replace("COMMUNITY", "COMMUNISM", 1)
    export.write_text("".join([*LINES[:2], changed, *LINES[3:]]))
    said = answer(export, code=1)
    bad = {"file": str(export), "line": 3, "chain": SIGNER.key_id, "seq": 3}
    assert (said["ok"], said["receipts"]) == (False, 2)
    assert said["bad"] == {**bad, "code": "hash_mismatch", "message": said["bad"]["message"]}
    assert "line 3, link 3 of chain" in verify(export, code=1).stdout


def test_a_dropped_or_swapped_line_is_named(export):
    export.write_text("".join([LINES[1], LINES[0]]))
    assert answer(export, code=1)["bad"]["code"] == "out_of_order"
    export.write_text("".join([LINES[0], LINES[3]]))
    assert answer(export)["gaps"] == 1


def test_several_files_are_one_chain(tmp_path):
    for number, line in enumerate(LINES):
        (tmp_path / f"{number}.json").write_text(json.dumps(json.loads(line), indent=2))
    assert answer(*sorted(tmp_path.glob("*.json")))["receipts"] == 5
    assert answer(*sorted(tmp_path.glob("*.json"), reverse=True), code=1)["bad"]["file"].endswith("3.json")


def test_standard_input(export):
    assert answer("-", stdin="".join(LINES))["receipts"] == 5


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_terminal_is_told_how_far_a_long_check_is_and_nobody_else(more):
    words = [sys.executable, "-m", "brain_coord", "receipts", "verify", "-", *more]
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        words, stdin=PIPE, stdout=PIPE, stderr=theirs, env=os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    )
    os.close(theirs)
    shown = b""
    program.stdin.write("".join(LINES).encode())
    program.stdin.flush()
    while not more and b"5 receipts checked" not in shown:
        shown += os.read(ours, 4096)
    said, _ = program.communicate(timeout=60)
    if more:
        with pytest.raises(OSError, match="Input/output"):  # the other end is closed, and nothing was written there
            os.read(ours, 1)
    os.close(ours)
    assert program.returncode == 0
    assert b"good: 5 receipts" in said or json.loads(said)["receipts"] == 5
    assert b"checked" not in said


def test_off_a_terminal_a_check_shows_no_progress(export):
    words = [sys.executable, "-m", "brain_coord", "receipts", "verify", str(export)]
    assert subprocess.run(words, capture_output=True, check=True).stderr == b""


def test_a_given_key_or_history_pins_the_signer(export, tmp_path):
    history = tmp_path / "signer.json"
    history.write_text(json.dumps(publish([first_key(SIGNER, 0.0)])))
    listed = tmp_path / "signers.json"
    listed.write_text(json.dumps([publish([first_key(SIGNER, 0.0)]), publish([first_key(Signer.generate(), 0.0)])]))
    for pin in (["--public-key", B64], ["--signer", history], ["--signer", listed]):
        assert answer(export, *pin)["pinned"] is True
    other = base64.b64encode(Signer.generate().public_key).decode()
    assert answer(export, "--public-key", other, code=1)["bad"]["code"] == "unknown_signer"


def test_usage_errors(export, tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "odd.json").write_text('{"chain": 1}')
    assert "no_receipts" in verify(tmp_path / "empty", code=2).stderr
    assert "unreadable" in verify(tmp_path / "missing", code=2).stderr
    assert "unreadable" in verify(export, "--signer", tmp_path / "missing", code=2).stderr
    assert "bad_history" in verify(export, "--signer", tmp_path / "odd.json", code=2).stderr
    assert "bad_history" in verify(export, "--signer", export, code=2).stderr
    verify(export, "--public-key", "AAAA", code=2)
    verify(code=2)


def test_what_is_no_receipt_is_bad(tmp_path):
    (tmp_path / "x").write_bytes(b"\x00\xff binary")
    assert answer(tmp_path / "x", code=1)["bad"]["code"] == "not_json"
    (tmp_path / "x").write_text("{}")
    assert answer(tmp_path / "x", code=1)["bad"]["code"] == "malformed"


@pytest.fixture
def data_dir(tmp_path):
    """A store with five receipts of one key and one of another."""

    async def fill():
        store = await Store.open(tmp_path / "data")
        for number in range(1, 6):
            await store.append_receipt(draft(number))
        await store.append_receipt(draft(6, key_id="k-b"))
        await store.close()

    asyncio.run(fill())
    return tmp_path / "data"


def run(*arguments, code=0):
    result = runner.invoke(receipts_app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.stdout


def test_an_export_verifies(data_dir, tmp_path):
    path = tmp_path / "out.jsonl"
    before = os.umask(0)
    try:
        assert run("export", "--data-dir", data_dir, "--output", path) == ""
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert answer(path)["receipts"] == 6
    assert answer("-", stdin=run("export", "--data-dir", data_dir))["receipts"] == 6


def test_an_export_may_be_of_one_key_or_time(data_dir):
    assert len(run("export", "--data-dir", data_dir, "--key", "k-b").splitlines()) == 1
    cut = ["--from", "2025-06-15T15:06:42Z", "--to", "2025-06-15T17:06:44+02:00"]
    times = [json.loads(line)["body"]["time"] for line in run("export", "--data-dir", data_dir, *cut).splitlines()]
    assert times == ["2025-06-15T15:06:42.000Z", "2025-06-15T15:06:43.000Z"]
    assert START_S + 2 == 1_750_000_002.0
    run("export", "--data-dir", data_dir, "--from", "yesterday", code=2)
    run("export", "--data-dir", data_dir, "--output", data_dir, code=2)


def test_a_key_or_chain_that_is_not_there_is_an_error_and_no_empty_export(data_dir):
    for option in ("--key", "--chain"):
        result = runner.invoke(receipts_app, ["export", "--data-dir", str(data_dir), option, "k-zz"])
        assert result.exit_code == 2
        assert result.stderr.startswith("error [no_such_")
    run("prune", "--data-dir", data_dir, "--older-than", "1d", "--chain", "zz", code=2)


def test_whoever_reads_only_the_first_lines_of_an_export_is_no_fault_of_the_store(data_dir):
    words = [sys.executable, "-m", "brain_coord", "receipts", "export", "--data-dir", str(data_dir), "--output"]
    with Path("/dev/full").open("wb") as full:
        said = subprocess.run([*words, "-"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert said.stderr.startswith("error [unwritable]: cannot write standard output")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        said = subprocess.run([*words, "-"], stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert said.stderr == ""


def test_an_export_in_other_forms(data_dir, tmp_path):
    assert len(run("export", "--data-dir", data_dir, "--format", "csv").splitlines()) == 7
    listed = run("export", "--data-dir", data_dir, "--json")
    assert [receipt["seq"] for receipt in json.loads(listed)] == [1, 2, 3, 4, 5, 6]
    assert run("export", "--data-dir", data_dir, "--json", "--output", tmp_path / "list.json") == ""
    assert (tmp_path / "list.json").read_text() == listed
    assert json.loads(run("export", "--data-dir", data_dir, "--json", "--from", "2099-01-01")) == []


def test_a_receipt_that_is_damaged_in_the_store_is_named(data_dir, tmp_path):
    with contextlib.closing(sqlite3.connect(data_dir / "coord.db", isolation_level=None)) as store:
        store.execute("UPDATE receipts SET body = cast(x'7b95' || substr(body, 3) AS BLOB) WHERE seq = 3")
    exported = tmp_path / "export.jsonl"
    assert run("export", "--data-dir", data_dir, "--output", exported) == ""
    bad = answer(exported, code=1)["bad"]
    assert (bad["line"], len(exported.read_text().splitlines())) == (3, 6)
    rows = list(csv.DictReader(run("export", "--data-dir", data_dir, "--format", "csv").splitlines()))
    assert [row["error"] for row in rows] == ["", "", "receipt_damaged", "", "", ""]
    said = runner.invoke(receipts_app, ["show", draft(3).receipt_id, "--data-dir", str(data_dir)])
    assert said.exit_code == 78
    assert said.stderr.startswith("error [receipt_damaged]: link 3 of chain ")


def test_one_receipt_is_shown(data_dir, tmp_path):
    path = tmp_path / "one.json"
    path.write_text(run("show", draft(3).receipt_id, "--data-dir", data_dir))
    assert answer(path)["receipts"] == 1
    run("show", "r-nothing", "--data-dir", data_dir, code=2)


def test_pruning_deletes_old_receipts_and_what_is_kept_verifies(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("brain_coord.cli.prune.time", SimpleNamespace(time=lambda: START_S + 3 + 90 * 86_400))
    monkeypatch.setattr("brain_coord.cli.prune.AT_ONCE", 1)
    before = [json.loads(line) for line in run("export", "--data-dir", data_dir).splitlines()]
    (done,) = json.loads(run("prune", "--older-than", "90d", "--data-dir", data_dir, "--json"))["chains"]
    assert (done["pruned"], done["checkpoint"]["seq"]) == (2, 2)
    deleted = before[1]
    assert {
        name: done["checkpoint"][name] for name in ("hash", "prev", "path", "signer", "public_key", "signature")
    } == {name: deleted[name] for name in ("hash", "prev", "path", "signer", "public_key", "signature")}
    path = tmp_path / "kept.jsonl"
    run("export", "--data-dir", data_dir, "--output", path)
    found = answer(path)
    assert (found["ok"], found["receipts"], found["gaps"]) == (True, 4, 0)
    assert json.loads(path.read_text().splitlines()[0])["prev"] == done["checkpoint"]["hash"]
    assert "0 receipts deleted; it goes on from link 2" in run("prune", "--older-than", "90d", "--data-dir", data_dir)
    run("prune", "--data-dir", data_dir, code=2)
    run("prune", "--older-than", "soon", "--data-dir", data_dir, code=2)


def test_a_store_goes_on_behind_what_another_process_pruned(data_dir):
    async def go_on():
        store = await Store.open(data_dir)
        await store.append_receipt(draft(7))
        await asyncio.to_thread(run, "prune", "--older-than", "1s", "--data-dir", data_dir)
        sealed = await store.append_receipt(draft(8))
        kept = [receipt.seq async for receipt in store.export_receipts()]
        await store.close()
        return sealed.seq, kept

    assert asyncio.run(go_on()) == (8, [8])
