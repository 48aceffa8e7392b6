"""`brain-coord browser-model`: a checkpoint is hashed, cut into stages and offered, or refused with a reason."""

import hashlib
import json
import os
import stat
import struct

import numpy as np
import pytest
import structlog

from brain_coord.browser.checkpoint import CheckpointError, Embeddings, read_tensors
from brain_coord.browser.models import FOLDER, PIECE_BYTES, add_model, model_files, read_bytes, read_model
from brain_coord.browser.shelf import Shelf
from tests.support.coordinator import brain_coord
from tests.support.models import build_known_text_model
from tests.support.qwen3 import build_known_qwen3

MODEL = "qwen/qwen3-0.6b"


@pytest.fixture
def folder(tmp_path):
    build_known_qwen3(tmp_path / "model")
    return tmp_path / "model"


def command(tmp_path, *arguments):
    return brain_coord("browser-model", *arguments, "--data-dir", str(tmp_path / "data"), "--json")


def add(tmp_path, folder, *options):
    return command(tmp_path, "add", str(folder), "--id", MODEL, *options)


def test_a_checkpoint_is_added_listed_and_removed(tmp_path, folder):
    added = add(tmp_path, folder, "--stages", "2")
    assert added.returncode == 0, added.stderr
    assert json.loads(added.stdout)["stages"] == 2
    assert [row["id"] for row in json.loads(command(tmp_path, "list").stdout)] == [MODEL]
    assert command(tmp_path, "remove", MODEL).returncode == 0
    assert json.loads(command(tmp_path, "list").stdout) == []
    gone = command(tmp_path, "remove", MODEL)
    assert gone.returncode != 0
    assert "no_such_model" in gone.stderr
    assert (folder / "model.safetensors").exists()


def test_a_model_may_be_added_before_the_coordinator_ever_started(tmp_path, folder):
    before = os.umask(0o022)
    try:
        assert add(tmp_path, folder).returncode == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert brain_coord("key", "create", "--data-dir", str(tmp_path / "data"), "--json").returncode == 0


def test_every_piece_has_the_hash_of_its_bytes_and_the_stages_cover_all_layers(tmp_path, folder):
    assert add(tmp_path, folder, "--stages", "2").returncode == 0
    (path,) = (tmp_path / "data" / "browser-models").glob("*.json")
    model = read_model(path)
    assert [(stage.first, stage.last, stage.final) for stage in model.stages] == [(0, 1, False), (1, 2, True)]
    for stage in model.stages:
        for tensor, pieces in stage.tensors:
            data = b"".join(read_bytes(folder / piece.file, piece.offset, piece.size_bytes) for piece in pieces)
            assert len(data) == tensor.size_bytes
            assert all(piece.size_bytes <= PIECE_BYTES for piece in pieces)
            for piece in pieces:
                raw = read_bytes(folder / piece.file, piece.offset, piece.size_bytes)
                assert hashlib.sha256(raw).hexdigest() == piece.sha256
    names = {tensor.name for tensor, _ in model.stages[0].tensors}
    assert "model.embed_tokens.weight" not in names, "a tab gets activations, not the table"


def test_embeddings_of_two_bytes_are_read_exactly(folder):
    rows = Embeddings(folder, read_tensors(folder)["model.embed_tokens.weight"])([3, 5])
    assert rows.dtype == np.float32
    assert np.array_equal(np.argmax(rows, axis=1), [3, 5])
    assert rows.sum() == 2.0


def edit(folder, **members):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **members}))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"model_type": "llama"}, "tabs run dense qwen3"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope type 'yarn'"),
        ({"attention_bias": True}, "biases"),
        ({"use_sliding_window": True}, "sliding windows"),
        ({"num_hidden_layers": 3}, "lacks model.layers.2"),
        ({"hidden_size": None}, "of the wrong kind"),
        ({"rope_theta": "far"}, "of the wrong kind"),
    ],
)
def test_what_the_kernels_cannot_run_is_refused_with_the_reason(tmp_path, folder, members, reason):
    edit(folder, **members)
    done = add(tmp_path, folder)
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_damaged_files_and_other_models_are_refused(tmp_path, folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "is not whole" in add(tmp_path, folder).stderr
    path.write_bytes(b"\xff" * 100)
    assert "is no safetensors file" in add(tmp_path, folder).stderr
    build_known_text_model(tmp_path / "llama")
    assert "'llama'" in add(tmp_path, tmp_path / "llama").stderr
    assert "cannot read" in add(tmp_path, tmp_path / "nothing").stderr


def tensors(header):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.safetensors", b"", "no safetensors file"),
        ("model.safetensors", tensors(b"\xff\xfe"), "no safetensors file"),
        ("model.safetensors", tensors([1]), "no safetensors file"),
        ("model.safetensors", tensors({"w": {"dtype": "F32", "shape": [1]}}), "does not say where w is"),
        ("model.safetensors", tensors({"w": 1}), "does not say where w is"),
        ("model.safetensors", tensors({"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}), "not whole"),
        ("tokenizer.json", b"{}", "is no tokenizer"),
        ("tokenizer.json", b"\xff", "is no tokenizer"),
        ("tokenizer_config.json", b"{", "cannot read"),
        ("tokenizer_config.json", json.dumps({"chat_template": "{% for %}"}).encode(), "chat template"),
        ("config.json", b"[]", "holds no object"),
    ],
)
def test_damaged_files_are_refused_by_name_and_do_not_keep_other_models_from_tabs(
    tmp_path, folder, name, content, reason
):
    good = tmp_path / "good"
    build_known_qwen3(good)
    add_model(tmp_path, good, "good/model", stages=1, replicas=1)
    add_model(tmp_path, folder, MODEL, stages=1, replicas=1)
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=reason):
        add_model(tmp_path, folder, MODEL, stages=1, replicas=1)
    assert offered(tmp_path) == ["good/model"]


def offered(data_dir):
    shelf = Shelf(data_dir)
    shelf._read(model_files(data_dir))
    return sorted(shelf.models)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"folder": 5}'])
def test_a_damaged_entry_is_told_and_the_others_are_offered(tmp_path, folder, content):
    add_model(tmp_path, folder, MODEL, stages=1, replicas=1)
    (tmp_path / FOLDER / "broken.json").write_text(content)
    with structlog.testing.capture_logs() as logs:
        assert offered(tmp_path) == [MODEL]
    assert [entry["event"] for entry in logs] == ["browser model not offered"]


async def test_an_entry_that_goes_while_it_is_looked_at_is_no_fault(tmp_path, folder, monkeypatch):
    add_model(tmp_path, folder, MODEL, stages=1, replicas=1)
    seen = [*model_files(tmp_path), tmp_path / FOLDER / "gone.json"]
    monkeypatch.setattr("brain_coord.browser.shelf.model_files", lambda _: seen)
    shelf = Shelf(tmp_path)
    await shelf.look()
    assert sorted(shelf.models) == [MODEL]
