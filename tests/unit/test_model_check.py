"""What is said of a model before an engine starts, and which models count as the same."""

import json
import shutil
import struct
from pathlib import Path

import pytest

from common.errors import EngineStartError
from worker.engines.model_check import check_model, is_path, served_name
from worker.engines.model_digest import model_digest, model_revision


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that looks like a model, weights in two shards."""
    folder = tmp_path / "some-model"
    folder.mkdir()
    (folder / "config.json").write_text('{"dtype": "bfloat16"}')
    shards = ["model-1.safetensors", "model-2.safetensors"]
    for shard in shards:
        _write_safetensors(folder / shard)
    index = {"weight_map": {"a": shards[0], "b": shards[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _write_safetensors(path: Path, *, size: int = 1000) -> None:
    header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))


def _complaint(model: Path, memory_bytes: int | None = None) -> EngineStartError:
    with pytest.raises(EngineStartError) as caught:
        check_model(str(model), environment={}, memory_bytes=memory_bytes)
    assert caught.value.permanent
    assert caught.value.do
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_whole_model_is_fine(model: Path) -> None:
    check_model(str(model), environment={}, memory_bytes=1 << 30)


def test_no_folder(tmp_path: Path) -> None:
    assert "no model folder" in _complaint(tmp_path / "absent").what


def test_no_config(model: Path) -> None:
    (model / "config.json").unlink()
    assert "config.json" in _complaint(model).what


def test_a_missing_shard_is_named(model: Path) -> None:
    (model / "model-2.safetensors").unlink()
    assert "1 of its weight files missing (model-2.safetensors)" in _complaint(model).what


def test_no_weights(model: Path) -> None:
    for path in model.glob("model*"):
        path.unlink()
    assert "no weights" in _complaint(model).what
    check_model(str(model), environment={}, weights=False)


def test_a_shard_cut_short(model: Path) -> None:
    shard = model / "model-1.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert "model-1.safetensors is cut short" in _complaint(model).what


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"])
def test_a_pointer_in_place_of_weights(model: Path, content: bytes) -> None:
    (model / "model-1.safetensors").write_bytes(content)
    assert "git lfs pull" in _complaint(model).do


def test_too_little_memory(model: Path) -> None:
    assert "too little memory" in _complaint(model, 2000).what
    (model / "config.json").write_text('{"torch_dtype": "float32"}')
    check_model(str(model), environment={}, memory_bytes=2000)


def test_a_name_is_left_to_the_engine_unless_it_may_not_download(tmp_path: Path) -> None:
    environment = {"HF_HOME": str(tmp_path)}
    check_model("someone/some-model", environment=environment)
    offline = {**environment, "HF_HUB_OFFLINE": "1"}
    with pytest.raises(EngineStartError, match="HF_HUB_OFFLINE"):
        check_model("someone/some-model", environment=offline)
    snapshot = _cache(tmp_path, "someone/some-model", "c" * 40)
    check_model("someone/some-model", environment=offline)
    assert model_revision("someone/some-model", None, environment=offline) == "c" * 40
    with pytest.raises(EngineStartError, match="not on this machine"):
        check_model("someone/some-model", environment=offline, revision="v2")
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(EngineStartError, match="no weights"):
        check_model("someone/some-model", environment=offline)
    (snapshot / "model.safetensors").touch()
    assert model_revision(str(snapshot), None, environment={}) == "c" * 40


def _cache(home: Path, name: str, commit: str) -> Path:
    repository = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    _write_safetensors(snapshot / "model.safetensors")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    return snapshot


def test_served_names(model: Path) -> None:
    assert served_name(str(model), None) == "some-model"
    assert served_name(f"{model}/", None) == "some-model"
    assert served_name("someone/some-model", None) == "someone/some-model"
    assert served_name(str(model), "mine") == "mine"
    assert not is_path("someone/some-model")
    assert is_path("./some-model")
    assert is_path("/models/a/b")


def test_a_path_mistyped_in_its_last_part_is_no_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent.parent)
    assert is_path(f"{model.parent.name}/some-mdoel")


def test_copies_are_the_same_model_and_changes_make_another(model: Path, tmp_path: Path) -> None:
    def revision(folder: Path) -> str | None:
        return model_revision(str(folder), None, environment={})

    copy = shutil.copytree(model, tmp_path / "copy")
    assert revision(copy) == revision(model)
    weights = bytearray((copy / "model-2.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model-2.safetensors").write_bytes(weights)
    assert revision(copy) != revision(model)
    other = shutil.copytree(model, tmp_path / "other")
    (other / "chat_template.jinja").write_text("{{ messages }}")
    assert revision(other) != revision(model)


def test_the_digest_covers_dtype_quantisation_and_template() -> None:
    digests = {
        model_digest("r", dtype=dtype, quantisation=quantisation, chat_template=template)
        for dtype in ("bfloat16", "float16")
        for quantisation in (None, "fp8")
        for template in (None, "t")
    }
    assert len(digests) == 8
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)
