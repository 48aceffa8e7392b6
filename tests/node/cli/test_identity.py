"""`brain-node identity`."""

import stat

import orjson
import pytest

from brain_node.agent.lock import DataDirLock
from brain_node.contract.identity import load_or_create_identity
from brain_node.exit_codes import CONFIG, OK, TEMPORARY, UNAVAILABLE, USAGE


@pytest.fixture
def identity(data_dir):
    return load_or_create_identity(data_dir / "node.key")


def test_the_id_is_shown(run, identity):
    assert identity.node_id in run("identity", "show").stdout
    assert orjson.loads(run("identity", "show", "--json").stdout)["node_id"] == identity.node_id


def test_without_one_it_says_how_to_get_one(run):
    result = run("identity", "show")
    assert result.exit_code == UNAVAILABLE
    assert "brain-node join" in result.stderr


@pytest.mark.case("F-03")
def test_a_saved_identity_is_private_and_can_be_restored_elsewhere(run, identity, tmp_path):
    saved = tmp_path / "saved" / "key"
    assert run("identity", "export", str(saved)).exit_code == OK
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    other = tmp_path / "other"
    assert run("identity", "import", str(saved), "--data-dir", str(other)).exit_code == OK
    assert load_or_create_identity(other / "node.key").node_id == identity.node_id
    assert stat.S_IMODE((other / "node.key").stat().st_mode) == 0o600


def test_it_passes_through_a_pipe(run, identity, tmp_path):
    line = run("identity", "export", "-").stdout
    other = tmp_path / "other"
    assert run("identity", "import", "-", "--data-dir", str(other), input=line).exit_code == OK
    assert load_or_create_identity(other / "node.key").node_id == identity.node_id


def test_an_identity_that_is_there_is_not_replaced_without_force(run, identity, tmp_path):
    other = load_or_create_identity(tmp_path / "other.key")
    result = run("identity", "import", str(tmp_path / "other.key"))
    assert result.exit_code == CONFIG
    assert "--force" in result.stderr
    assert identity.node_id in run("identity", "show").stdout
    assert run("identity", "import", "--force", str(tmp_path / "other.key")).exit_code == OK
    assert other.node_id in run("identity", "show").stdout


def test_a_running_agent_keeps_its_identity(run, identity, data_dir, tmp_path):
    load_or_create_identity(tmp_path / "other.key")
    lock = DataDirLock(data_dir)
    result = run("identity", "import", "--force", str(tmp_path / "other.key"))
    lock.release()
    assert result.exit_code == TEMPORARY
    assert identity.node_id in run("identity", "show").stdout


def test_export_never_overwrites(run, identity, tmp_path):
    (tmp_path / "there").write_text("precious")
    assert run("identity", "export", str(tmp_path / "there")).exit_code == USAGE
    assert (tmp_path / "there").read_text() == "precious"


@pytest.mark.parametrize("content", [None, b"rubbish", b"\xff\xfe"])
def test_what_is_no_identity_is_refused(run, tmp_path, content):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    result = run("identity", "import", str(path))
    assert result.exit_code == USAGE
    assert "Traceback" not in result.output
