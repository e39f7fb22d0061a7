"""Who gave a command: what a wish carries, and what of a command is written down."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from producer.audit import by_whom, note_command
from producer.cli_options import InputOptions
from producer.job_directory import JobDirectory
from producer.steering import Wish


@pytest.mark.parametrize("by", ["", by_whom(), "uid10001@collector.example"])
def test_a_wish_says_who_left_it(by: str) -> None:
    wish = Wish.make("cancel", by=by)
    assert Wish.parse(str(wish)) == wish


@pytest.mark.parametrize("by", ["a b", "a\nb", "../x", "a" * 200, '"'])
def test_a_wish_of_a_strange_author_is_none(by: str) -> None:
    assert Wish.parse(str(Wish("cancel", "0" * 16, by))) is None


def test_a_command_is_written_down_without_secrets(tmp_path: Path) -> None:
    directory = cast(JobDirectory, SimpleNamespace(audit_log_path=tmp_path / "audit.log"))
    given = InputOptions(
        file="in.jsonl",
        redis_url="redis://:5ecret@host/0",
        vllm_flags=["--api-key", "5ecret"],
        tag=["api_key=5ecret"],
        max_retries=2,
        overwrite=True,
    )
    note_command("run", directory, job="j", options=given)
    note_command("cancel", directory, job="j")
    text = directory.audit_log_path.read_text()
    first, second = map(json.loads, text.splitlines())
    assert "5ecret" not in text
    assert first["options"].keys() == {"file", "tag", "max_retries", "overwrite"}
    assert (first["verb"], second["verb"], second["by"]) == ("run", "cancel", by_whom())
    assert directory.audit_log_path.stat().st_mode & 0o777 == 0o600


def test_a_disk_that_takes_no_line_stops_nobody(tmp_path: Path) -> None:
    directory = cast(JobDirectory, SimpleNamespace(audit_log_path=tmp_path / "absent" / "audit.log"))
    note_command("cancel", directory, job="j")
