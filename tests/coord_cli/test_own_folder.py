"""Commands that have a file of their own in the data folder: they take the same folders as the store, and say what is wrong."""

import stat

import pytest

from tests.support.coordinator import brain_coord

COMMANDS = pytest.mark.parametrize("command", [("operator", "create"), ("browser-model", "remove", "a/b")])


@COMMANDS
def test_a_folder_of_something_else_is_refused_and_stays_as_it_was(tmp_path, command):
    tmp_path.chmod(0o755)
    (tmp_path / "somebody's").touch()
    said = brain_coord(*command, "--data-dir", str(tmp_path))
    assert said.returncode == 78
    assert said.stderr.startswith("error [data_dir]: ")
    assert [path.name for path in tmp_path.iterdir()] == ["somebody's"]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize("command", ["create", "revoke"])
def test_a_file_that_cannot_be_written_is_an_error_with_the_way_out(tmp_path, command):
    (tmp_path / "operator.json").mkdir(parents=True)
    said = brain_coord("operator", command, "--data-dir", str(tmp_path))
    assert said.returncode == 78
    assert said.stderr.startswith("error [data_dir]: ")
    assert "next: Run as the user who owns it" in said.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["operator.json"]
