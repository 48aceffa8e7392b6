"""What no command expects is told in one line with the next step."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from brain_coord.admin import ask
from brain_coord.cli import main
from brain_node.exit_codes import CONFIG, TEMPORARY


def refuse(*_: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", "/srv/coord/browser-models")


def test_a_folder_of_somebody_else_is_no_traceback(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(Path, "glob", refuse)
    monkeypatch.setattr(sys, "argv", ["brain-coord", "browser-model", "list", "--data-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == CONFIG
    assert capsys.readouterr().err == (
        "error [system]: Permission denied: /srv/coord/browser-models\n"
        "  next: run it as the user that the coordinator runs as, or with sudo\n"
    )


def test_a_running_coordinator_of_somebody_else_is_not_taken_for_a_broken_one(monkeypatch, tmp_path):
    monkeypatch.setattr("brain_coord.admin.connect_private", refuse)
    with pytest.raises(PermissionError):
        ask(tmp_path, "status")


def test_an_answer_that_finds_no_room_is_no_traceback():
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "brain_coord", "schema"]
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == TEMPORARY
    assert ended.stderr.startswith("error [system]: No space left on device\n  next: ")
    assert "Traceback" not in ended.stderr
