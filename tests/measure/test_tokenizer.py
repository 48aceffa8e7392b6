"""Exact counts with a model's own tokenizer."""

import structlog

from brain_coord.measure.tokenizer import Tokenizers
from tests.support.models import SENTENCE, build_known_text_model


def test_tokens_are_counted_as_the_engine_writes_them(tmp_path):
    model = build_known_text_model(tmp_path / "known")
    tokenizers = Tokenizers.load([("known", model.path)])
    assert "known" in tokenizers
    assert tokenizers.count("known", SENTENCE) == len(model.words)


def test_a_model_without_a_tokenizer_is_not_counted(tmp_path):
    tokenizers = Tokenizers.load([("other", tmp_path)])
    assert "other" not in tokenizers
    assert tokenizers.count("other", "text") is None


def test_a_damaged_file_is_named_and_left_out(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with structlog.testing.capture_logs() as logs:
        assert "m" not in Tokenizers.load([("m", tmp_path)])
    assert logs[0]["event"] == "unreadable tokenizer"
