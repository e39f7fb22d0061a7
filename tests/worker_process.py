"""One worker process without a supervisor, its hints, its heartbeat and its log: for tests with a real Redis."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from common import keys
from common.broker import TASK_NAME, make_app, make_queue
from common.settings import Settings
from common.wire import WIRE_VERSION
from tests.processes import environment
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker_parts import JOB
from worker.options import SimOptions, WorkerOptions

NAME = "host-cpu0-00000001"


class Worker:
    """A worker process, and hints to it."""

    def __init__(self, server: Server, log: Path, process: "subprocess.Popen[bytes]") -> None:
        self.client = server.client()
        self.process = process
        self._log = log
        self._app = make_app(Settings(redis_url=server.url))

    def hint(self, *mbs: int, n: int = 8, queue: str | None = None) -> None:
        """Send hints as the collector does."""
        for mb in mbs:
            self._app.send_task(
                TASK_NAME,
                args=[WIRE_VERSION, JOB, mb, n],
                queue=make_queue(queue or keys.queue("*")),
                priority=6,
                argsrepr=f"job={JOB} mb={mb} n={n}",
                ignore_result=True,
            )

    def presence(self) -> dict[str, str]:
        """Its heartbeat."""
        fields = cast(dict[bytes, bytes], self.client.hgetall(keys.worker(NAME)))
        return {name.decode(): value.decode() for name, value in fields.items()}

    def events(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def waiting_hints(self) -> int:
        """Hints in the queue: those that no worker has taken, and those that were handed back."""
        names = [keys.queue("*") + suffix for suffix in ("", "\x06\x163", "\x06\x166", "\x06\x169")]
        return sum(int(str(self.client.llen(name))) for name in names)

    def end(self, timeout_s: float = 20) -> int:
        """Wait for its end."""
        return self.process.wait(timeout_s)


@contextmanager
def started_worker(
    server: Server, log: Path, *, sim: SimOptions, target_share: float = 1.0, **knobs: str
) -> Iterator[Worker]:
    """A ready worker process, ended at the end."""
    options = WorkerOptions(engine="sim", sim=sim, incarnation=NAME, gpu="cpu0", target_share=target_share)
    env = environment(BAKEHOUSE_REDIS_URL=server.url, **options.to_environment(), **knobs)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.app"], env=env, stdout=output, stderr=output, start_new_session=True
        )
    worker = Worker(server, log, process)
    try:
        wait_until(
            lambda: process.poll() is not None or worker.presence().get("state") == "ready",
            timeout_s=30,
            description="the worker is ready",
        )
        assert process.poll() is None, log.read_text()
        yield worker
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
