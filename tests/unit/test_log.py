"""Secrets do not reach the logs, by whichever way they come."""

import json
from pathlib import Path

import pytest

from common.log import Event, configure, get_logger, log_lines, redact


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("redis://user:pw@host/0", "redis://***@host/0"),
        ("rediss://:pw@host:1/0", "rediss://***@host:1/0"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("redis://:half/of@it@host/0", "redis://***@host/0"),
        ("HF_TOKEN=hf_abcdefgh12345", "HF_TOKEN=***"),
        ("seen hf_abcdefgh12345 here", "seen *** here"),
        ('{"password": "x y"}', '{"password": "*** y"}'),
        ("600 prompt_tokens 5", "600 prompt_tokens 5"),
    ],
)
def test_redact(text: str, safe: str) -> None:
    assert redact(text) == safe


def test_file_holds_json_lines_of_ours_and_of_libraries(tmp_path: Path) -> None:
    import logging

    path = tmp_path / "bakehouse.log"
    configure(level="info", file=path, quiet_terminal=True)
    get_logger("worker.test").info(Event.WORKER_READY, url="redis://:secret-word@h/0")
    get_logger("worker.test").debug(Event.HINT_DROPPED)
    logging.getLogger("elsewhere").warning("at %s", "redis://:secret-word@h/0")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["worker_ready", "at redis://***@h/0"]
    assert "secret-word" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_nested_is_redacted_too(tmp_path: Path) -> None:
    path = tmp_path / "bakehouse.log"
    configure(level="info", file=path)
    get_logger("worker.test").info(
        Event.WORKER_READY,
        options={"url": ["redis://:secret-word@h/0"]},
        error=ValueError("at redis://:secret-word@h/0"),
    )
    assert "secret-word" not in path.read_text()
    assert "***@h/0" in path.read_text()


def test_many_lines_are_one_write_to_the_file_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bakehouse.log"
    configure(level="info", file=path)
    log_lines("worker.test", [b'{"seq":1}', b'{"seq":2}'])
    get_logger("worker.test").info(Event.WORKER_READY)
    assert [json.loads(line).get("seq") for line in path.read_text().splitlines()] == [1, 2, None]
    assert "seq" not in capfd.readouterr().err
    configure(level="info")
    log_lines("worker.test", [b'{"seq":3}'])
    assert '{"seq":3}' in capfd.readouterr().err
