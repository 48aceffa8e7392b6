"""Files that hold secrets."""

import os
import stat
import threading

import pytest

from brain_node.contract.secret_file import read_private, write_private

pytestmark = pytest.mark.case("F-03")


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_loose_file_is_tightened(tmp_path):
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o644)
    assert read_private(path) == ("secret", True)
    assert mode(path) == 0o600
    assert read_private(path) == ("secret", False)


def test_a_folder_named_by_mistake_keeps_its_permissions(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(IsADirectoryError):
        read_private(folder)
    assert mode(folder) == 0o1777


def test_a_program_named_by_mistake_keeps_its_permissions(tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF\xff\xfe")
    program.chmod(0o755)
    with pytest.raises(UnicodeDecodeError):
        read_private(program)
    assert mode(program) == 0o755


def test_a_pipe_is_read_and_left_as_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    writer = threading.Thread(target=pipe.write_text, args=("secret",))
    writer.start()
    assert read_private(pipe) == ("secret", False)
    writer.join()
    assert mode(pipe) == 0o666


def test_what_a_killed_writer_left_is_in_nobodys_way(tmp_path):
    """In a container every agent has the same process number."""
    (tmp_path / f".record.{os.getpid()}").touch()
    write_private(tmp_path / "record", "new")
    assert (tmp_path / "record").read_text() == "new"


def test_many_may_write_at_once(tmp_path):
    path, faults = tmp_path / "record", []

    def write(text: str) -> None:
        try:
            for _ in range(50):
                write_private(path, text)
        except OSError as error:
            faults.append(error)

    writers = [threading.Thread(target=write, args=(text * 1000,)) for text in "ab"]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert faults == []
    assert path.read_text() in ("a" * 1000, "b" * 1000)
    assert [each.name for each in tmp_path.iterdir()] == ["record"]
