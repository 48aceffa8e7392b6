"""The README says what the code does: whatever is missing from it, or no longer true in it, fails here."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import brain_coord.cli
import brain_coord.cli.shapes
import brain_node.cli
import brain_node.cli.shapes
from brain_coord.config.load import variables
from brain_coord.gateway.errors import CODES
from brain_node import exit_codes
from brain_node.contract.messages import EndCause
from tests.support.schemas import commands_with_json

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SOURCES = {
    path: path.read_text() for package in ("brain_coord", "brain_node") for path in (ROOT / package).rglob("*.py")
}


def test_the_reference_parts_are_as_the_code_is():
    checked = subprocess.run(
        [sys.executable, "scripts/cli_reference", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def rows(part: str) -> list[list[str]]:
    """The cells of a generated part's tables."""
    text = README.split(f"<!-- begin: {part} ")[1].split(f"<!-- end: {part} -->")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.parametrize("part", ["commands", "settings", "routes", "metrics", "messages"])
def test_everything_in_the_reference_has_words_of_its_own(part: str):
    listed = rows(part)
    assert len(listed) > 5
    for row in listed:
        assert max(len(cell.split()) for cell in row if not cell.startswith("`")) >= 1, row
        words = row[1] if part == "commands" else row[2] if part in ("routes", "messages") else row[-1]
        assert words, row


def test_every_error_code_is_described_with_its_status():
    for code, (status, meaning) in CODES.items():
        assert f"| `{code}` | {status} | {meaning} |" in README, code


def test_every_reason_for_which_a_node_is_not_taken_is_described():
    found = {
        code
        for path, text in SOURCES.items()
        if path.is_relative_to(ROOT / "brain_coord")
        for code in re.findall(r"(?:\bRefused\(|_refused\(|_not_taken\()\s*(?:code=)?\"([a-z_]+)\"", text)
    }
    assert len(found) >= 6
    assert {code for code in found if f"| `{code}` |" not in README} == set()


def test_every_exit_code_is_described():
    numbers = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    section = README.split("### Exit codes of brain-node")[1].split("##")[0]
    assert {number for number in numbers if f"| {number} |" not in section} == set()


def test_environment_variables_in_the_code_are_described():
    used = {
        name
        for text in SOURCES.values()
        for name in re.findall(r"\"(BRAIN_[A-Z0-9_]+[A-Z0-9])\"", text)
        if not name.endswith("_")
    }
    assert {"BRAIN_NODE_TOKEN", "BRAIN_COORD_DATABASE_URL"} <= used
    known = README + (ROOT / "packaging" / "coord" / "config.example.toml").read_text()
    assert {name for name in used if name not in known and name != "BRAIN_COORD"} == set()


def test_every_setting_of_the_coordinator_is_read_by_the_name_that_the_readme_gives_it():
    named = {row[1].strip("`"): row[0].strip("`") for row in rows("settings") if row[0].startswith("`[") and row[1]}
    read = {variable: f"[{'.'.join(map(str, where[:-1]))}] {where[-1]}" for variable, where in variables().items()}
    assert named | {"BRAIN_COMMUNITY_FIRST": "[routing] community_first"} == read


def test_every_command_in_the_readme_exists():
    listed = [row[0].strip("`") for row in rows("commands")]
    names = {re.sub(r" (\[?[A-Z…].*)$", "", name) for name in listed}
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))
    used = re.findall(r"^(brain-(?:node|coord)(?: [a-z][a-z-]+)*)", blocks, re.MULTILINE)
    assert len(used) >= 8
    for command in used:
        words = command.split()
        assert any(" ".join(words[:length]) in names for length in range(2, len(words) + 1)), command


def test_every_command_with_json_has_a_schema_and_no_other():
    """`shapes` in the programs' `cli` folders; tests/coord_cli and tests/node/cli hold real outputs against them."""
    coord = commands_with_json(typer.main.get_command(brain_coord.cli.app))
    node = commands_with_json(typer.main.get_command(brain_node.cli.app))
    assert set(coord) == set(brain_coord.cli.shapes.SHAPES)
    assert set(node) - {"join"} == set(brain_node.cli.shapes.SHAPES)  # of `join` it sets the form of the log


def test_every_option_in_the_readme_exists():
    listed = {row[0].strip("`"): row[2] for row in rows("commands")}
    options = {
        option for shown in listed.values() for each in re.findall(r"`([^`]+)`", shown) for option in each.split("/")
    }
    scripts = "".join(
        (ROOT / "scripts" / name).read_text()
        for name in ("quickstart", "test", "install-node.sh", "cli_reference", "bench/fleet", "bench/run")
    )
    hand_written = re.sub(r"<!-- begin.*?<!-- end[^>]*-->", "", README, flags=re.DOTALL)
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", hand_written)) - {"--help", "--install-completion"}:
        assert option in options or option in scripts, option


def test_files_that_the_readme_names_exist():
    for name in set(re.findall(r"\((\S+?\.(?:md|toml))\)|`(?:\./)?((?:scripts|packaging)/[\w./-]+)", README)):
        path = next(filter(None, name)).split(" ")[0]
        assert (ROOT / path).exists(), path


def test_every_cause_of_the_protocol_is_one_that_metrics_tell_apart():
    from brain_coord.observe.metrics import CAUSES

    assert set(EndCause.__args__) <= CAUSES


def test_nothing_in_the_readme_points_at_the_place_it_was_made():
    for path in (ROOT / "README.md", ROOT / "packaging" / "coord" / "config.example.toml"):
        assert not re.search(r"/work/|/tmp/|pypi\.org|registry\.npmjs", path.read_text()), path


def test_the_examples_of_the_api_are_json_or_python_that_parses():
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        compile(block, "README.md", "exec")
    for block in re.findall(r"```json\n(.*?)```", README, re.DOTALL):
        json.loads(block)
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL):
        for line in block.splitlines():
            assert shlex.split(line, comments=True) is not None


def helps(name: str, command: Any, parent: typer.Context | None = None) -> Iterator[tuple[str, str]]:
    """The help of a command and of all below it, as an 80 column terminal shows it."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield context.command_path, command.get_help(context)
    for child, under in getattr(command, "commands", {}).items():
        yield from helps(child, under, context)


@pytest.mark.parametrize(("program", "app"), [("brain-node", brain_node.cli.app), ("brain-coord", brain_coord.cli.app)])
def test_every_help_says_what_to_write_and_cuts_no_sentence(program: str, app: typer.Typer, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name, text in helps(program, typer.main.get_command(app)):
        _, _, options = text.partition("\nOptions:\n")
        options, _, commands = options.partition("\nCommands:\n")
        as_a_type = re.search(r"<(?![a-z]+\||=)", options)  # choices and bounds stand so too
        assert not as_a_type, name
        assert "..." not in commands, name
        assert max(map(len, text.splitlines())) <= 80, name


@pytest.mark.parametrize("app", [brain_node.cli.app, brain_coord.cli.app])
def test_both_programs_say_their_version_as_a_command_and_as_an_option(app: typer.Typer):
    said = [CliRunner().invoke(app, [asked]) for asked in ("version", "--version")]
    assert [(each.exit_code, each.stdout) for each in said] == [(0, f"{brain_node.__version__}\n")] * 2
