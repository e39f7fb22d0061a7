"""A collector process that ends by SIGKILL just before the N-th call of one function (TARGET: module:Class.name).

python -m tests.crashing REDIS_URL JOBS JOB TARGET N
"""

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from common.broker import make_client
from common.settings import Settings
from producer.collector import Collector
from producer.job_directory import JobDirectory

QUICK: dict[str, Any] = {"renew_s": 0.1, "expire_s": 0.6, "look_s": 0.1, "linger_s": 0.005}


def arm(target: str, number: int, *, signum: int = signal.SIGKILL) -> None:
    """Send `signum` to this process just before the `number`-th call of `target`: by default the last thing it does."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    calls = 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signum)
        return original(*args, **kwargs)

    setattr(owner, name, deadly)


def main(url: str, jobs: str, job: str, target: str, number: str) -> None:
    """Run the job until it is done, or the process is."""
    settings = Settings(redis_url=url, **QUICK)
    arm(target, int(number))
    directory = JobDirectory.open(Path(jobs), job)
    Collector(directory, settings=settings, client=make_client(url)).run(until="done")


if __name__ == "__main__":
    main(*sys.argv[1:])
