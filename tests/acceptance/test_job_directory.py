"""The job directory under real processes: standard input given again, and two commands at the same moment."""

import subprocess
import sys
from pathlib import Path

from producer.job_directory import JobDirectory
from tests.waiting import wait_until

CONTENT = b'{"custom_id":"a","prompt":"hi"}\n'


def test_two_commands_at_once_make_one_job(tmp_path: Path) -> None:
    """Both have looked for the same job and found none; both are still spooling when the first one is done."""
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    wait_until(
        lambda: len(list((tmp_path / "jobs").glob(".draft-*/input"))) == 2, timeout_s=20, description="both spool"
    )
    said = [maker.communicate(CONTENT)[0] for maker in makers]
    assert sorted(said) == [b"made\n", b"refused\n"]
    assert len(JobDirectory.list_all(tmp_path / "jobs")) == 1


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

STDIN_JOB = """
import sys
from pathlib import Path
from common.errors import RefusedError
from common.settings import Settings
from producer.job_directory import JobDirectory
from producer.job_spec import JobSpec
jobs = Path(sys.argv[1])
spec = JobSpec.from_settings(Settings(), input="-", output=None, model=None, redis="given")
same = JobDirectory.find_same(jobs, spec)
if same is None:
    same = JobDirectory.create(jobs, spec, settings=Settings())
else:
    try:
        same.check_stdin_unchanged()
    except RefusedError as error:
        print(error.do)
        sys.exit(2)
same.check_input_unchanged()
sys.stdout.write(same.input_path.read_text())
"""


def test_standard_input_is_spooled_and_compared_when_given_again(tmp_path: Path) -> None:
    def run(content: bytes) -> tuple[int, bytes]:
        command = [sys.executable, "-c", STDIN_JOB, str(tmp_path / "jobs")]
        done = subprocess.run(command, input=content, stdout=subprocess.PIPE, check=False)
        return done.returncode, done.stdout

    assert run(CONTENT) == (0, CONTENT)
    assert run(CONTENT) == (0, CONTENT)
    code, said = run(CONTENT * 2)
    assert (code, b"--fresh" in said) == (2, True)
