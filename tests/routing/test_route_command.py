"""`brain-coord route --snapshot FILE [--json]`."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from brain_coord.cli.route import route

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "routing.json").read_text())
CLASS_VECTOR = next(vector for vector in VECTORS if vector["expect"].get("class", {}).get("selected"))
NODE_VECTOR = next(vector for vector in VECTORS if vector["name"] == "node-1001")

app = typer.Typer(add_completion=False)
app.command()(route)


@pytest.fixture
def run(tmp_path):
    def run(content, *flags):
        file = tmp_path / "snapshot.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return CliRunner().invoke(app, ["--snapshot", str(file), *flags])

    return run


def test_one_snapshot_gives_one_object(run):
    answer = json.loads(run(CLASS_VECTOR["snapshot"], "--json").stdout)
    assert answer["class"]["selected"] == CLASS_VECTOR["expect"]["class"]["selected"]
    assert answer["node"] is None


def test_a_list_gives_a_list_bare_or_with_a_snapshot_member(run):
    answers = json.loads(run([NODE_VECTOR, NODE_VECTOR["snapshot"]], "--json").stdout)
    assert [answer["node"]["selected"] for answer in answers] == [NODE_VECTOR["expect"]["node"]["selected"]] * 2
    assert json.loads(run([], "--json").stdout) == []


def test_a_vector_alone_gives_one_object(run):
    assert json.loads(run(NODE_VECTOR, "--json").stdout)["node"]["selected"]


def test_a_dash_reads_standard_input():
    result = CliRunner().invoke(app, ["--snapshot", "-", "--json"], input=json.dumps(NODE_VECTOR))
    assert json.loads(result.stdout)["node"]["selected"] == NODE_VECTOR["expect"]["node"]["selected"]


def test_people_get_a_table_and_the_sentence(run):
    result = run(NODE_VECTOR)
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        "node",
        "score",
        "capability",
        "availability",
        "latency",
        "reputation",
        "price",
        "notes",
    ]
    assert lines[1].startswith("N-80E213700787C9B1  0.796234")
    assert lines[-1].startswith("N-80E2…: score 0.796234 = 0.30·capability 0.670286 + ")
    assert "and 4 more" in lines
    assert "\x1b" not in result.stdout


def test_unknown_is_shown_as_unknown(run):
    result = run({"classes": [{"class": "CLOUD_GPU", "cost_usd": None, "reliability": 1.0}]})
    assert "CLOUD_GPU  0.5625  UNKNOWN  UNKNOWN  1            UNKNOWN" in result.stdout


def test_a_member_that_means_nothing_is_noted_beside_the_json(run):
    result = run({"classes": [], "request": {"max_cost": 1}}, "--json")
    assert result.stderr == "note: $.request.max_cost is no member of a snapshot and was ignored\n"
    assert json.loads(result.stdout)["class"]["selected"] is None


@pytest.mark.parametrize(
    ("content", "exit_code", "cause"),
    [
        (
            '{"classes": [{"class": "CLOUD_GPU", "cost_usd": NaN}]}',
            65,
            "$.classes[0].cost_usd: must be a finite number",
        ),
        ('[{"classes": []}, {"snapshot": {"nodes": 3}}]', 65, "$[1].snapshot.nodes: must be a list, not 3"),
        ("{", 65, "$: is not JSON ("),
        ("[" * 100_000, 65, "$: is not JSON ("),
        ("", 65, "$: is not JSON ("),
    ],
    ids=["nan", "in a list", "cut off", "too deep", "empty"],
)
def test_a_bad_file_is_two_lines_on_stderr_and_an_exit_code(run, content, exit_code, cause):
    result = run(content, "--json")
    assert result.exit_code == exit_code
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith(f"error [bad_snapshot]: {cause}")
    assert second.startswith("  next: ")


def test_a_missing_file_is_two_lines_on_stderr_and_an_exit_code(tmp_path):
    result = CliRunner().invoke(app, ["--snapshot", str(tmp_path / "none.json")])
    assert result.exit_code == 66
    assert result.stderr.startswith("error [unreadable_snapshot]: ")


def test_a_name_cannot_move_the_cursor(run):
    node = {"node_id": "N-\x1b[2J[red]", "state": "OFFLINE", "slots": 1}
    result = run({"model": {"id": "m"}, "nodes": [node]})
    assert "\x1b" not in result.stdout
    assert "N-\N{REPLACEMENT CHARACTER}[2J[red]" in result.stdout


PROGRAM = [sys.executable, "-c", "import typer; from brain_coord.cli.route import route; typer.run(route)"]


@pytest.mark.case("F-02")
def test_a_narrow_encoding_is_no_error(tmp_path):
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(NODE_VECTOR))
    environment = os.environ | {"PYTHONIOENCODING": "cp437"}
    result = subprocess.run([*PROGRAM, "--snapshot", str(file)], capture_output=True, env=environment, check=False)
    assert result.returncode == 0
    assert b"N-80E2?: score 0.796234" in result.stdout


def on_a_terminal(file, **environment):
    """What the program writes when a terminal reads it."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [*PROGRAM, "--snapshot", str(file)],
        stdout=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "140"} | environment,
    )
    os.close(theirs)
    written = b""
    try:
        while piece := os.read(ours, 65536):
            written += piece
    except OSError:  # the way Linux says that the other end is closed
        pass
    finally:
        os.close(ours)
    assert program.wait() == 0
    return written.decode("utf-8", "replace")


@pytest.mark.case("F-02")
def test_a_terminal_gets_a_boxed_table_and_a_dumb_one_a_plain_one(tmp_path):
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(NODE_VECTOR))
    utf8 = {"PYTHONIOENCODING": "utf-8"}
    assert "│ N-6BA76B92359ABBEB │" in on_a_terminal(file, **utf8)
    for plain in ({"TERM": "dumb"} | utf8, {"PYTHONIOENCODING": "cp1252"}):
        written = on_a_terminal(file, **plain)
        assert "N-6BA76B92359ABBEB  0.755372" in written
        assert "\x1b" not in written
