"""`brain-coord browser-model`: a checkpoint is hashed, cut into stages and offered, or refused with a reason."""

import hashlib
import json

import numpy as np
import pytest

from brain_coord.browser.checkpoint import Embeddings, read_tensors
from brain_coord.browser.models import PIECE_BYTES, read_bytes, read_model
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
