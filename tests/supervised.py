"""A supervisor over stand-in workers, for what a real worker would do only by chance: fall, refuse to start, not obey.

As a program: `supervise URL FILE`, which runs `worker.node.supervise` over one stand-in and reads from FILE, at each of
its starts, how it is to behave; `hurry URL PATTERN` over a real worker with a simulated engine, without long pauses.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from common import keys
from common.broker import make_client
from common.errors import BakehouseError
from common.log import configure
from common.settings import load
from worker import restarts
from worker.launch import Plan
from worker.node import supervise
from worker.options import EXIT_OUT_OF_MEMORY, SimOptions, WorkerOptions

CHILDREN = "bakehouse-test:children"


def stand_in(url: str, behaviour: str) -> None:
    """One life of a worker that says that it is ready and then does as it is told."""
    if behaviour.startswith("exit "):
        sys.exit(int(behaviour.split()[1]))
    client = make_client(url)
    if behaviour == "with children":
        plain = subprocess.Popen(["sleep", "600"])
        titled = subprocess.Popen(["VLLM::EngineCore", "600"], executable=shutil.which("sleep"), env={})
        client.rpush(CHILDREN, plain.pid, titled.pid)
        client.expire(CHILDREN, 600)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    options = WorkerOptions.from_environment()
    facts: list[str | int | float] = ["state", "ready", "results", 0, "pid", os.getpid(), "share", options.target_share]
    client.hset(keys.worker(options.incarnation), items=facts)
    client.expire(keys.worker(options.incarnation), 600)
    if behaviour == "abort":
        os.abort()
    if behaviour == "out of memory":
        sys.exit(EXIT_OUT_OF_MEMORY)
    while True:
        signal.pause()


def stand_in_plan(url: str, file: Path) -> Plan:
    """One stand-in that behaves as FILE says."""
    command = (sys.executable, "-P", "-m", "tests.supervised", "stand-in", url, str(file))
    return Plan(WorkerOptions(engine="sim", gpu="cpu0"), dict(os.environ), command)


def simulated_plan(url: str, pattern: str) -> Plan:
    """One real worker whose simulated engine does what `pattern` says."""
    options = WorkerOptions(engine="sim", gpu="cpu0", sim=SimOptions(patterns=(pattern,)))
    return Plan(options, {**os.environ, "BAKEHOUSE_REDIS_URL": url})


def main(url: str, plan: Plan) -> int:
    """Supervise one worker; returns the exit code."""
    configure()
    settings = load(redis_url=url, drain_timeout_s=0.0)
    try:
        return supervise([plan], settings=settings, say=lambda words: print(words, file=sys.stderr))
    except BakehouseError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)


if __name__ == "__main__":
    role, redis_url, last = sys.argv[1:]
    if role == "supervise":
        sys.exit(main(redis_url, stand_in_plan(redis_url, Path(last))))
    if role == "hurry":
        restarts.LONGEST_PAUSE_S = 0.1
        sys.exit(main(redis_url, simulated_plan(redis_url, last)))
    stand_in(redis_url, Path(last).read_text())
