"""The allowlist: what the shipped file promises, and what is said about a file that breaks a rule."""

import math
from pathlib import Path

import pytest

from brain_node.contract.catalog import Catalog, CatalogError, Device, UnknownModelError, load_catalog
from brain_node.contract.footprint import MIB

SHIPPED = load_catalog()

ENTRY = """
[[model]]
id = "acme/tiny"
name = "Tiny"
repo = "acme/Tiny"
revision = "main"
params_b = 0.5
context = 4096
min_vram_mib = 2000
license = "mit"
gated = false
device = "cuda"
args = []
"""


@pytest.fixture
def catalog_of(tmp_path: Path):
    def load(text: str) -> Catalog:
        path = tmp_path / "catalog.toml"
        path.write_text(text, encoding="utf-8")
        return load_catalog(path)

    return load


def faults_of(load, text: str) -> list[str]:
    with pytest.raises(CatalogError) as caught:
        load(text)
    return [fault.reason for fault in caught.value.faults]


class TestShippedCatalog:
    @pytest.mark.parametrize(
        "name",
        [
            "qwen/qwen2.5-1.5b-instruct",
            "qwen/qwen2.5-3b-instruct",
            "qwen/qwen2.5-7b-instruct",
            "qwen/qwen2.5-7b-instruct-awq",
            "qwen/qwen2.5-14b-instruct",
            "qwen/qwen2.5-14b-instruct-awq",
            "qwen/qwen2.5-32b-instruct",
            "qwen/qwen2.5-32b-instruct-awq",
            "qwen/qwen2.5-coder-32b-instruct-awq",
            "qwen/qwen2.5-72b-instruct-awq",
            "qwen/qwen3-0.6b",
            "qwen/qwen3-1.7b",
            "qwen/qwen3-4b",
            "qwen/qwen3-8b",
            "qwen/qwen3-14b",
            "qwen/qwen3-32b",
            "qwen/qwen3-30b-a3b",
            "meta-llama/llama-3.1-8b-instruct",
            "meta-llama/llama-3.3-70b-instruct",
            "mistralai/mistral-7b-instruct-v0.3",
            "google/gemma-3-4b-it",
            "google/gemma-3-12b-it",
            "google/gemma-3-27b-it",
            "deepseek-ai/deepseek-r1-distill-qwen-32b",
            "deepseek-ai/deepseek-r1-distill-llama-8b",
            "openai/gpt-oss-20b",
            "huggingfacetb/smollm2-135m-instruct",
            "brain/mock",
        ],
    )
    def test_names_every_model_we_promise(self, name):
        assert name in SHIPPED

    @pytest.mark.parametrize("model", [m for m in SHIPPED if not m.mock], ids=lambda m: m.id)
    def test_floor_is_what_the_published_formula_gives(self, model):
        shape = model.architecture
        per_layer = 2 * shape.kv_heads * shape.head_dim * shape.kv_value_bytes
        full = shape.full_attention_layers if shape.full_attention_layers is not None else shape.layers
        windowed = min(model.context, (shape.sliding_window or model.context) + 2048)
        kv = per_layer * (full * model.context + (shape.layers - full) * windowed)
        floor = shape.weights_bytes + kv + shape.activation_bytes + 512 * MIB
        assert model.min_vram_mib == math.ceil(floor / MIB)

    @pytest.mark.parametrize("model", [m for m in SHIPPED if not m.mock], ids=lambda m: m.id)
    def test_weights_agree_with_the_parameter_count(self, model):
        bytes_per_parameter = model.architecture.weights_bytes / (model.params_b * 1e9)
        four_bit = "awq" in model.id or model.id == "openai/gpt-oss-20b"
        low, high = (0.5, 0.8) if four_bit else (1.97, 2.03)
        assert low < bytes_per_parameter < high

    @pytest.mark.parametrize(
        ("name", "total_mib"),
        [
            ("qwen/qwen2.5-7b-instruct-awq", 8188),
            ("qwen/qwen2.5-3b-instruct", 8188),
            ("qwen/qwen2.5-14b-instruct-awq", 16303),
            ("openai/gpt-oss-20b", 16303),
            ("qwen/qwen2.5-7b-instruct", 22919),
            ("qwen/qwen2.5-32b-instruct-awq", 22919),
            ("qwen/qwen2.5-coder-32b-instruct-awq", 22919),
            ("qwen/qwen3-8b", 22919),
            ("meta-llama/llama-3.1-8b-instruct", 22919),
            ("mistralai/mistral-7b-instruct-v0.3", 22919),
            ("deepseek-ai/deepseek-r1-distill-llama-8b", 22919),
            ("qwen/qwen2.5-72b-instruct-awq", 46068),
            ("qwen/qwen2.5-32b-instruct", 81559),
        ],
    )
    def test_the_poorest_card_of_a_class_reaches_the_floor_of_what_is_meant_for_it(self, name, total_mib):
        assert SHIPPED.require(name).min_vram_mib < total_mib

    @pytest.mark.parametrize("model", list(SHIPPED), ids=lambda m: m.id)
    def test_never_runs_code_that_ships_with_weights_and_never_reads_a_folder(self, model):
        assert "--trust-remote-code" not in model.args
        assert model.local_folder is None

    def test_licences_and_gates_are_those_of_the_hub(self):
        gated = {model.id for model in SHIPPED if model.gated}
        assert gated == {m.id for m in SHIPPED if m.id.startswith(("meta-llama/", "google/"))}
        assert SHIPPED.require("qwen/qwen2.5-3b-instruct").license == "qwen-research"
        assert SHIPPED.require("qwen/qwen2.5-72b-instruct-awq").license == "qwen"
        assert SHIPPED.require("meta-llama/llama-3.3-70b-instruct").license == "llama3.3"
        assert SHIPPED.require("google/gemma-3-4b-it").license == "gemma"

    @pytest.mark.parametrize("model", [m for m in SHIPPED if not m.mock], ids=lambda m: m.id)
    def test_weights_are_pinned_to_a_commit(self, model):
        assert len(model.revision) == 40
        assert set(model.revision) <= set("0123456789abcdef")

    def test_only_the_stand_in_is_a_mock(self):
        assert [model.id for model in SHIPPED if model.mock] == ["brain/mock"]

    def test_a_machine_without_a_card_finds_real_models(self):
        assert "huggingfacetb/smollm2-135m-instruct" in {m.id for m in SHIPPED if m.device is Device.ANY}


class TestNames:
    def test_are_exact(self):
        assert SHIPPED.get("Qwen/Qwen2.5-7B-Instruct") is None

    @pytest.mark.parametrize("typed", ["qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct", "qwen/qwen2.5-7b-instuct"])
    def test_a_near_miss_is_told_the_name_that_was_meant(self, typed):
        with pytest.raises(UnknownModelError) as caught:
            SHIPPED.require(typed)
        assert caught.value.nearest[0] == "qwen/qwen2.5-7b-instruct"
        assert caught.value.code == "unknown_model"
        assert "did you mean qwen/qwen2.5-7b-instruct" in caught.value.next_step

    @pytest.mark.parametrize("typed", ["", "%%%%"])
    def test_nothing_is_guessed_from_nothing(self, typed):
        assert SHIPPED.nearest(typed) == ()


class TestOperatorsFile:
    def test_replaces_the_shipped_catalog_and_keeps_file_order(self, catalog_of):
        catalog = catalog_of(ENTRY.replace("acme/tiny", "acme/zulu") + ENTRY)
        assert [model.id for model in catalog] == ["acme/zulu", "acme/tiny"]

    def test_needs_only_the_documented_keys(self, catalog_of):
        model = catalog_of(ENTRY).require("acme/tiny")
        assert (model.architecture, model.max_context, model.min_vram_bytes) == (None, 4096, 2000 * MIB)

    def test_may_name_a_local_folder_relative_to_itself(self, catalog_of, tmp_path):
        model = catalog_of(ENTRY.replace('"acme/Tiny"', '"./weights"')).require("acme/tiny")
        assert model.local_folder == tmp_path / "weights"

    def test_flags_written_with_an_equals_sign_become_separate_words(self, catalog_of):
        model = catalog_of(ENTRY.replace("args = []", 'args = ["--dtype=half", "--enforce-eager"]')).require(
            "acme/tiny"
        )
        assert model.args == ("--dtype", "half", "--enforce-eager")

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (('"mit"', '"mit"\ntrust = true'), "unknown key 'trust'"),
            (('name = "Tiny"\n', ""), "key 'name' is missing"),
            (("context = 4096", "context = -1"), "context -1 is out of range"),
            (("min_vram_mib = 2000", "min_vram_mib = -1"), "min_vram_mib -1 is out of range"),
            (("params_b = 0.5", "params_b = nan"), "params_b nan"),
            (("params_b = 0.5", 'params_b = "0.5"'), "params_b '0.5'"),
            (("gated = false", "gated = 0"), "gated 0"),
            (('device = "cuda"', 'device = "tpu"'), "device 'tpu' must be 'cuda', 'cpu' or 'any'"),
            (('"acme/tiny"', '"Acme/Tiny"'), "id: must be a lower-case org/name"),
            (('"acme/Tiny"', '"just-a-name"'), "repo: must be a hub repository"),
            (('revision = "main"', 'revision = "--port=1"'), "revision: must be a branch"),
            (("args = []", 'args = ["--trust-remote-code"]'), "args: --trust-remote-code is never allowed"),
            (("args = []", 'args = ["--trust_remote_code"]'), "args: --trust-remote-code is never allowed"),
            (("args = []", 'args = ["--host", "0.0.0.0"]'), "args: --host is decided by the node"),
            (("args = []", 'args = ["--middleware", "x"]'), "args: unknown engine flag '--middleware'"),
            (("args = []", 'args = ["--dtype", "int3"]'), "args: --dtype must be one of"),
            (("args = []", 'args = ["--dtype"]'), "args: --dtype needs a value"),
            (("args = []", 'args = ["--enforce-eager", "--enforce-eager"]'), "args: --enforce-eager is given twice"),
            (("args = []", "args = []\nlayers = 4"), "layers is given without weights_bytes"),
            (("args = []", "args = []\nmax_context = 2048"), "max_context 2048 is below context 4096"),
        ],
    )
    def test_each_broken_rule_is_one_plain_reason(self, catalog_of, change, reason):
        (only,) = faults_of(catalog_of, ENTRY.replace(*change))
        assert only.startswith(reason)

    def test_all_faults_come_in_one_error_with_line_and_entry(self, catalog_of):
        text = ENTRY + ENTRY + ENTRY.replace("acme/tiny", "acme/other").replace("context = 4096", "context = 0")
        with pytest.raises(CatalogError) as caught:
            catalog_of(text)
        duplicate, range_fault = caught.value.faults
        assert (duplicate.line, duplicate.entry, duplicate.reason) == (15, "acme/tiny", "duplicate id, first on line 2")
        assert (range_fault.line, range_fault.entry) == (28, "acme/other")
        assert str(caught.value).count("\n") == 0
        assert "2 faults" in str(caught.value)

    def test_toml_that_cannot_be_read_names_the_line(self, catalog_of):
        with pytest.raises(CatalogError) as caught:
            catalog_of(ENTRY + "gated = maybe\n")
        assert caught.value.faults[0].line == 14

    @pytest.mark.parametrize("text", ["", "model = 3", "[model]\nid = 'a/b'"])
    def test_a_file_without_entries_is_a_fault(self, catalog_of, text):
        assert faults_of(catalog_of, text) == ["holds no [[model]] entry"]

    def test_a_missing_file_is_the_same_kind_of_error(self, tmp_path):
        with pytest.raises(CatalogError, match="cannot be read: No such file"):
            load_catalog(tmp_path / "none.toml")
