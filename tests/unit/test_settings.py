"""Knobs: precedence, bounds, and refusals that name what is wrong."""

from pathlib import Path

import pytest

from common.errors import RefusedError
from common.settings import load


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "inference_config.yaml"
    path.write_text(text)
    return path


def test_later_sources_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(tmp_path, "batch_size: 8\nmax_retries: 1\nlook_s: 1\n")
    monkeypatch.setenv("BAKEHOUSE_MAX_RETRIES", "2")
    monkeypatch.setenv("BAKEHOUSE_LOOK_S", "1.5")
    settings = load(config, look_s=1.25, batch_tokens=None)
    assert (settings.batch_size, settings.max_retries, settings.look_s) == (8, 2, 1.25)
    assert settings.batch_tokens == 16_384


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("batchsize: 8\n", "batchsize: no such knob"),
        ("batch_size: 0\n", "batch_size: "),
        ("renew_s: 9\n", "expire_s"),
        ("look_s: 10\n", "look_s"),
        ("- a\n", "cannot be read"),
        ("a: [\n", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(RefusedError) as refused:
        load(write(tmp_path, text))
    assert named in str(refused.value)
    assert "inference_config.yaml" in str(refused.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no such configuration file"):
        load(tmp_path / "absent.yaml")


def test_flag_out_of_bounds_is_refused() -> None:
    with pytest.raises(RefusedError, match="fail_above"):
        load(fail_above=1.5)


@pytest.mark.parametrize(
    ("given", "seconds"), [("90", 90), ("30s", 30), ("1.5 m", 90), ("10m", 600), ("2h", 7200), (5, 5)]
)
def test_a_duration_as_people_type_it(given: object, seconds: float) -> None:
    assert load(exit_when_idle_s=given).exit_when_idle_s == seconds


@pytest.mark.parametrize("given", ["ten", "10 minutes", "-5", "1h30m", "nan", ""])
def test_what_is_no_duration_is_refused_by_name(given: str) -> None:
    with pytest.raises(RefusedError, match="exit_when_idle_s"):
        load(exit_when_idle_s=given)
