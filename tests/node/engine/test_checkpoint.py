"""What a local folder says about its model, and what is said about a folder that cannot be served."""

import json
from pathlib import Path

import pytest

from brain_node.contract.catalog import Catalog, load_catalog
from brain_node.engine.checkpoint import CheckpointError, read_shape, with_checkpoints
from tests.support.fake_environment import MODEL

CONFIG = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 256}


def checkpoint(folder: Path, config: object = CONFIG, **sizes: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    for name, size in (sizes or {"model": 1000}).items():
        (folder / f"{name}.safetensors").write_bytes(b"w" * size)
    return folder


def catalog_with(folder: Path, tmp_path: Path, **keys: int) -> Catalog:
    text = MODEL.format(id="test/local", folder=folder, params_b=0.1, min_vram_mib=64)
    path = tmp_path / "catalog.toml"
    path.write_text(text + "".join(f"{key} = {value}\n" for key, value in keys.items()))
    return load_catalog(path)


def test_the_shape_is_read_from_the_folders_own_files(tmp_path):
    folder = checkpoint(tmp_path / "m")
    (model,) = with_checkpoints(catalog_with(folder, tmp_path))
    assert model.unusable is None
    assert model.architecture is not None
    assert (model.architecture.weights_bytes, model.architecture.head_dim) == (1000, 64)
    assert model.architecture.divides(2)


def test_the_catalogs_own_keys_win(tmp_path):
    folder = checkpoint(tmp_path / "m", "damaged")
    keys = {"weights_bytes": 7, "layers": 1, "attention_heads": 8, "kv_heads": 8, "head_dim": 16}
    (model,) = with_checkpoints(catalog_with(folder, tmp_path, **keys))
    assert model.unusable is None
    assert model.architecture is not None
    assert model.architecture.weights_bytes == 7


def test_models_from_a_hub_are_left_as_they_are():
    shipped = load_catalog()
    assert with_checkpoints(shipped) == shipped


def test_the_index_names_the_files_that_count(tmp_path):
    folder = checkpoint(tmp_path / "m", a=100, b=200, consolidated=900)
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    shape = read_shape(folder)
    assert shape is not None
    assert shape.weights_bytes == 300


def test_weights_in_two_forms_are_counted_once(tmp_path):
    shape = read_shape(checkpoint(tmp_path / "m", model=100, consolidated=100))
    assert shape is not None
    assert shape.weights_bytes == 100


def test_a_mistral_folder_tells_no_shape(tmp_path):
    (tmp_path / "m").mkdir()
    assert read_shape(tmp_path / "m", ("--config-format", "mistral")) is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, "config.json is missing"),
        ("{", "config.json is damaged: not JSON"),
        ("[]", "config.json is damaged: it holds no object"),
        (CONFIG | {"num_key_value_heads": 3}, "config.json is damaged: num_attention_heads 4 is no multiple"),
    ],
)
def test_a_damaged_or_missing_configuration_is_told(tmp_path, config, said):
    folder = checkpoint(tmp_path / "m", config or "")
    if config is None:
        (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=said):
        read_shape(folder)
    (model,) = with_checkpoints(catalog_with(folder, tmp_path))
    assert model.unusable is not None
    assert said in model.unusable


def test_missing_weights_are_told(tmp_path):
    folder = checkpoint(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="holds no weights"):
        read_shape(folder)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "gone.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"gone\.safetensors is missing"):
        read_shape(folder)
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="no weight_map"):
        read_shape(folder)


def test_a_folder_that_does_not_exist_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        read_shape(tmp_path / "nowhere")
