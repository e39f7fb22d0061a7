"""The job directory under real processes: two commands that make the same job at the same moment."""

import subprocess
import sys
from pathlib import Path

from producer.job_directory import JobDirectory
from producer.job_lock import JobLock
from tests.waiting import wait_until


def test_two_commands_at_once_make_one_job(tmp_path: Path) -> None:
    """Both have looked for the same job and found none, and each has its draft, when the first one is done."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    with JobLock(jobs / ".lock"):
        makers = [
            subprocess.Popen([sys.executable, "-c", MAKE, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(2)
        ]
        wait_until(lambda: len(list(jobs.glob(".draft-*/job.json"))) == 2, timeout_s=20, description="two drafts")
    said = [maker.communicate()[0] for maker in makers]
    assert sorted(said) == [b"made\n", b"refused\n"]
    assert len(JobDirectory.list_all(jobs)) == 1


MAKE = """
import sys
from pathlib import Path
from common.errors import RefusedError
from common.settings import Settings
from producer.job_directory import JobDirectory
from producer.job_spec import JobSpec
folder = Path(sys.argv[1])
spec = JobSpec.from_settings(Settings(), input="-", output=str(folder / "out.jsonl"), model=None, redis="given")
try:
    JobDirectory.create(folder / "jobs", spec, settings=Settings())
    print("made")
except RefusedError:
    print("refused")
"""
