"""The log of an engine."""

import os

import pytest

from brain_node.engine.logs import KEEP_LINES, EngineLog


@pytest.fixture
def log(tmp_path):
    made = EngineLog(tmp_path / "logs" / "engine.log", max_bytes=1000, keep=2)
    yield made
    made.close()


def test_lines_arrive_whole_from_any_pieces(log):
    for piece in (b"one\ntw", b"o\r\nthr", b"ee\rfour"):
        log.feed(piece)
    assert log.tail() == ("one", "two", "three")
    log.flush()
    assert log.tail()[-1] == "four"


def test_the_last_lines_are_kept_and_a_new_run_begins_empty(log):
    log.feed(b"".join(b"%d\n" % number for number in range(500)))
    assert len(log.tail()) == KEEP_LINES
    assert log.last_line == "499"
    log.begin_run("next", ())
    assert log.tail() == ()
    assert log.last_line == ""


def test_files_are_private_and_rotated(log):
    umask = os.umask(0)
    try:
        for number in range(200):
            log.feed(b"line %d of a talkative engine\n" % number)
    finally:
        os.umask(umask)
    files = sorted(log.path.parent.iterdir())
    assert [file.name for file in files] == ["engine.log", "engine.log.1", "engine.log.2"]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert all(file.stat().st_size <= 1000 for file in files)
    assert log.path.parent.stat().st_mode & 0o077 == 0
    assert "line 199" in log.path.read_text()


def test_nothing_that_a_terminal_would_obey_is_kept(log):
    log.feed(b"a client's \x1b]0;title\x07 and \xc2\x9b2J\n\tindented naive-\xc3\xaf\n")
    assert log.tail() == ("a client's  ]0;title  and  2J", " indented naive-\u00ef")
    assert "\x1b" not in log.path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "token hf_abcdefghijKLMNOP used",
        "Authorization: Bearer hf-or-anything-secret",
        "GET http://user:secret@host/x",
        "api_key=secret-value",
        "the key is our-own-secret here",
    ],
)
def test_secrets_are_taken_out(log, text):
    log.begin_run("run", ("our-own-secret",))
    log.feed(text.encode() + b"\n")
    for shown in (log.tail()[0], log.path.read_text()):
        assert "secret" not in shown
        assert "hf_abcdefgh" not in shown
        assert "[hidden]" in shown


def test_a_line_without_end_is_cut(log):
    log.feed(b"x" * 100_000)
    assert log.tail()
    assert max(map(len, log.tail())) <= 8192


def test_a_disk_that_takes_nothing_does_not_stop_the_engine(tmp_path):
    (tmp_path / "file").write_text("")
    log = EngineLog(tmp_path / "file" / "engine.log")
    log.feed(b"still heard\n")
    assert log.tail() == ("still heard",)
    assert log.failed
    log.close()


def test_bytes_that_are_no_text_are_survived(log):
    log.feed(b"\xff\xfe broken \xe2\x82\n")
    assert "broken" in log.last_line


def test_a_link_put_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "logs").mkdir()
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    (tmp_path / "logs" / "engine.log").symlink_to(target)
    log = EngineLog(tmp_path / "logs" / "engine.log")
    log.feed(b"line\n")
    assert target.read_text() == "precious"
    assert log.failed
    log.close()
