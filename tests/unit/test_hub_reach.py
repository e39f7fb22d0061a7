"""Whether the hub is asked at all before an engine starts: only while somebody answers there."""

from pathlib import Path

import pytest

from common.errors import EngineStartError
from tests.stand_in_hub import stand_in_hub
from worker.engines.hub_reach import revision_of, settle_offline

NOBODY = "http://127.0.0.1:9"


def _cache(home: Path) -> None:
    repository = home / "hub" / "models--our--model"
    (repository / "snapshots" / "abc").mkdir(parents=True)
    (repository / "snapshots" / "abc" / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")


def test_a_hub_that_refuses_is_there(tmp_path: Path) -> None:
    with stand_in_hub() as url:
        environment = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path)}
        assert not settle_offline("our/model", revision=None, environment=environment)
    assert "HF_HUB_OFFLINE" not in environment


def test_without_a_network_what_is_here_is_taken(tmp_path: Path) -> None:
    environment = {"HF_ENDPOINT": NOBODY, "HF_HOME": str(tmp_path)}
    with pytest.raises(EngineStartError, match="not on this machine, and the hub does not answer") as caught:
        settle_offline("our/model", revision=None, environment=environment)
    assert not caught.value.permanent, "the network may come back"
    _cache(tmp_path)
    assert settle_offline("our/model", revision=None, environment=environment)
    assert environment["HF_HUB_OFFLINE"] == "1"
    with pytest.raises(EngineStartError):
        settle_offline("our/model", revision="v2", environment={"HF_ENDPOINT": NOBODY, "HF_HOME": str(tmp_path)})


def test_a_folder_needs_no_hub(tmp_path: Path) -> None:
    assert not settle_offline(str(tmp_path), revision=None, environment={"HF_ENDPOINT": NOBODY})
    assert not settle_offline("our/model", revision=None, environment={"HF_ENDPOINT": NOBODY, "HF_HUB_OFFLINE": "1"})


@pytest.mark.parametrize(
    ("flags", "revision"),
    [
        ([], None),
        (["--revision"], None),
        (["--dtype", "float32", "--revision", "v1"], "v1"),
        (["--revision=v2", "-q", "awq"], "v2"),
        (["--tokenizer-revision", "v3"], None),
    ],
)
def test_the_revision_among_vllms_flags(flags: list[str], revision: str | None) -> None:
    assert revision_of(flags) == revision
