"""A log file and stderr whose disk is full: entries are dropped, that is said once, and later ones are written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import RefusedError
from common.log import Event, configure, get_logger, log_lines
from tests.faults.small_disk import SmallDisk

LINES = [b'{"seq":%d}' % seq for seq in range(500)]
"""More than the last block of a file has room for."""


def test_entries_are_dropped_while_the_disk_is_full(disk: SmallDisk, capfd: pytest.CaptureFixture[str]) -> None:
    path = disk.path / "bakehouse.log"
    configure(level="info", file=path, quiet_terminal=True)
    log = get_logger("worker.test")
    log.info(Event.WORKER_READY)
    disk.fill()
    for _ in range(3):
        log_lines("worker.test", LINES)
    said = capfd.readouterr().err
    assert said.count(f"the log cannot be written: No space left on device ({path})") == 1
    assert "Traceback" not in said
    disk.make_room()
    log.info(Event.WORKER_DRAINED)
    log.info(Event.WORKER_STOPPED)
    assert capfd.readouterr().err == f"the log is written again; 3 entries were dropped ({path})\n"
    lines = path.read_text().splitlines()
    assert json.loads(lines[0])["event"] == "worker_ready"
    assert [json.loads(line)["event"] for line in lines[-2:]] == ["worker_drained", "worker_stopped"]
    configure(level="info")


def test_a_read_only_disk_drops_and_a_bad_place_is_refused(disk: SmallDisk, capfd: pytest.CaptureFixture[str]) -> None:
    disk.protect()
    configure(level="info", file=disk.path / "bakehouse.log", quiet_terminal=True)
    assert "Read-only file system" in capfd.readouterr().err
    with pytest.raises(RefusedError, match="the log file cannot be opened: No such file"):
        configure(level="info", file=disk.path / "nowhere" / "bakehouse.log")
    configure(level="info")


@pytest.mark.parametrize(("first", "code"), [("", 1), ("make_stderr_steady()", 7)])
def test_talk_on_a_full_disk_is_lost_and_no_more(first: str, code: int) -> None:
    """Without it the same program ends by an error."""
    program = f"""
import sys
from common.talk import make_stderr_steady
{first}
print("to a full disk", file=sys.stderr, flush=True)
sys.exit(7)
"""
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([sys.executable, "-c", program], stderr=full, check=False).returncode == code
