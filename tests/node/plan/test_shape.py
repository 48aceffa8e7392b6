"""The shape of a model from its checkpoint's own configuration."""

import pytest

from brain_node.contract.footprint import Architecture
from brain_node.plan.shape import ShapeError, shape_of

QWEN = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
}


def test_the_usual_members_are_the_shape():
    assert shape_of(QWEN, 1000) == Architecture(
        weights_bytes=1000, layers=28, attention_heads=28, kv_heads=4, head_dim=128
    )


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"num_key_value_heads": None}, "kv_heads", 28),
        ({"head_dim": 64}, "head_dim", 64),
        ({"torch_dtype": "float32"}, "weights_bytes", 500),
        ({"torch_dtype": None, "dtype": "float32"}, "weights_bytes", 500),
    ],
)
def test_what_is_left_out_or_told_otherwise(change, field, value):
    assert getattr(shape_of(QWEN | change, 1000), field) == value


def test_flags_of_the_catalog_count():
    shape = shape_of(QWEN | {"torch_dtype": "float32"}, 1000, ("--dtype", "float32", "--kv-cache-dtype", "fp8"))
    assert shape is not None
    assert (shape.weights_bytes, shape.kv_value_bytes) == (1000, 1)


def test_layers_with_a_window_are_counted_where_they_are_listed():
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    config = QWEN | {"num_hidden_layers": 6, "layer_types": kinds, "sliding_window": 512}
    shape = shape_of(config, 1000)
    assert shape is not None
    assert (shape.full_attention_layers, shape.sliding_window) == (1, 512)


def test_a_model_for_pictures_has_its_language_models_shape():
    assert shape_of({"vision_config": {}, "text_config": QWEN}, 1000) == shape_of(QWEN, 1000)


@pytest.mark.parametrize("config", [{}, {"num_hidden_layers": 48, "state_size": 16}, QWEN | {"kv_lora_rank": 512}])
def test_what_the_formula_does_not_describe_has_no_shape(config):
    assert shape_of(config, 1000) is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_attention_heads": "28"}, "num_attention_heads"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"hidden_size": 3585}, "hidden_size"),
        ({"num_hidden_layers": 1 << 60}, "num_hidden_layers"),
        ({"text_config": []}, "text_config"),
    ],
)
def test_what_no_model_can_have_is_named(change, named):
    with pytest.raises(ShapeError, match=named):
        shape_of(QWEN | change, 1000)
