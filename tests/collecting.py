"""A job in a temporary folder, its collector in a thread, and a worker made of real claims: for tests of the collector.

The worker takes real hints from the Celery queues, claims by the real scripts and publishes results it makes up. What
it does at each step can be changed, to lose holds, publish twice, or vanish.
"""

import base64
import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self, cast

import orjson
import redis

from common import keys
from common.claim_types import Publication
from common.claims import Claims
from common.settings import Settings
from common.wire import MicroBatch, Request, Result, pack_results, unpack_micro_batch
from producer.collector import Collector, Until
from producer.job_directory import JobDirectory
from producer.job_spec import JobSpec
from producer.outcome import Outcome
from tests.processes import ROOT, environment
from tests.servers import Server

SEPARATOR = "\x06\x16"
PRIORITY_STEPS = (0, 3, 4, 6, 7, 9)


def write_input(path: Path, total: int, *, text: str = "hello", model: str | None = "m") -> Path:
    """A JSONL file of `total` good chat lines with ids r0, r1, ..."""
    with path.open("w") as file:
        for i in range(total):
            body: dict[str, Any] = {"messages": [{"role": "user", "content": f"{text} {i}"}], "max_tokens": 4}
            if model is not None:
                body["model"] = model
            line = {"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    return path


def quick_settings(server: Server, **more: Any) -> Settings:
    """Settings whose holds are lost within a second."""
    quick: dict[str, Any] = {"renew_s": 0.1, "expire_s": 0.6, "look_s": 0.1, "linger_s": 0.005, "batch_size": 8}
    return Settings(redis_url=server.url, **{**quick, **more})


class Bench:
    """One job and all that is needed to run it."""

    def __init__(
        self, folder: Path, server: Server, source: Path, *, model: str | None = "m", settings: Settings | None = None
    ) -> None:
        self.server = server
        self.settings = settings or quick_settings(server)
        self.jobs = folder / "jobs"
        spec = JobSpec.from_settings(
            self.settings, input=str(source), output=str(folder / "out.jsonl"), model=model, redis="given"
        )
        self.directory = JobDirectory.create(self.jobs, spec, settings=self.settings)
        self.job = self.directory.spec.job
        self.claims = Claims(server.client())
        self.reasons: list[str | None] = []

    def collector(self) -> Collector:
        """A fresh collector of the job, as a new process would make it."""
        return Collector(
            self.directory,
            settings=self.settings,
            client=self.server.client(),
            on_waiting=self.reasons.append,
        )

    def run(self, *, until: Until = "done") -> Outcome:
        """Run a fresh collector to its end, in this thread."""
        return self.collector().run(until=until)

    def crash(self, target: str, number: int) -> None:
        """Run a collector in a process that ends by SIGKILL just before the `number`-th call of `target`."""
        arguments = [self.server.url, self.jobs, self.job, target, number]
        command = [sys.executable, "-m", "tests.crashing", *map(str, arguments)]
        killed = subprocess.run(command, cwd=ROOT, env=environment(), timeout=60, check=False)
        assert killed.returncode == -signal.SIGKILL, f"{target} was not called {number} times"

    def results(self) -> list[dict[str, Any]]:
        """The ordered file's lines; a torn last line is an error."""
        raw = self.directory.output_path.read_bytes()
        assert raw == b"" or raw.endswith(b"\n"), "torn last line"
        return [json.loads(line) for line in raw.split(b"\n")[:-1]]

    def check_whole(self, total: int) -> None:
        """Every line has its own result, once, in order."""
        assert [result["custom_id"] for result in self.results()] == [f"r{i}" for i in range(total)]


class Running:
    """A collector in a thread of its own."""

    def __init__(self, collector: Collector, *, until: Until = "done", stays: bool = False) -> None:
        self.collector = collector
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(until, stays), daemon=True)
        self._thread.start()

    def _run(self, until: Until, stays: bool) -> None:
        try:
            self.outcome = self.collector.run(until=until, stays=stays)
        except BaseException as error:
            self.error = error

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def join(self, *, timeout_s: float = 30) -> Outcome:
        """Its outcome; raises what it raised."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"the collector still runs after {timeout_s} s"
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome


class FakeEngineWorker:
    """A worker without an engine: takes hints, claims, publishes made-up results. Use as a context manager."""

    def __init__(
        self,
        server: Server,
        *,
        models: Iterable[str] = ("m",),
        digest: str = "d1",
        publish: Callable[["FakeEngineWorker", str, MicroBatch, str, int], None] | None = None,
        share: int = 4,
        target: int = 16,
        steps: Iterable[int] = PRIORITY_STEPS,
    ) -> None:
        """`steps`: the priorities it takes hints of."""
        self.steps = tuple(steps)
        self.incarnation = f"test-{secrets.token_hex(4)}"
        self.models, self.digest, self.target, self.share = tuple(models), digest, target, share
        self.client = server.client()
        self.claims = Claims(self.client)
        self.claimed: list[int] = []
        self.answers: list[str] = []
        self.hints: list[tuple[str, int, int]] = []
        self.errors: list[BaseException] = []
        self._publish = publish or type(self).publish_all
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.show()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.client.delete(keys.worker(self.incarnation))

    def show(self) -> None:
        """Put the heartbeat into Redis."""
        fields = {
            "models": orjson.dumps(self.models),
            "digest": self.digest,
            "state": "ready",
            "target": self.target,
        }
        self.client.hset(keys.worker(self.incarnation), mapping=cast(Any, fields))
        self.client.expire(keys.worker(self.incarnation), 20)

    def queue_keys(self) -> list[str]:
        """Every list it takes hints from, most urgent first."""
        queues = [keys.queue(model, digest) for model in self.models for digest in (None, self.digest)]
        return [f"{queue}{SEPARATOR}{step}" if step else queue for step in self.steps for queue in queues]

    def waiting_hints(self) -> int:
        """Hints that nobody has taken."""
        return sum(int(cast(Any, self.client.llen(queue))) for queue in self.queue_keys())

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.show()
                self.work()
            except (redis.RedisError, OSError):
                time.sleep(0.05)
            except AssertionError as error:
                self.errors.append(error)
                return

    def work(self) -> None:
        """Take one hint, if there is any, and do what it says."""
        taken: Any = self.client.brpop(self.queue_keys(), timeout=0.05)
        if taken is None:
            return
        where, message = taken[0].decode(), json.loads(taken[1])
        args, _kwargs, _embed = json.loads(base64.b64decode(message["body"]))
        version, job, mb, n = args
        assert version == 1
        assert message["headers"]["argsrepr"] == f"job={job} mb={mb} n={n}"
        self.hints.append((where, mb, n))
        token = secrets.token_hex(16)
        claimed = self.claims.claim(
            job, mb, token=token, worker=self.incarnation, model=self.models[0], digest=self.digest
        )
        self.answers.append(claimed.answer)
        if claimed.answer == "GO":
            assert claimed.z is not None
            self.claimed.append(mb)
            self._publish(self, job, unpack_micro_batch(claimed.z), token, claimed.got)

    def publish_all(self, job: str, batch: MicroBatch, token: str, got: int) -> None:
        """Publish what is missing, `share` results an entry."""
        missing = [i for i in range(len(batch.requests)) if not got >> i & 1]
        for start in range(0, len(missing), self.share):
            self.publish_some(job, batch, token, missing[start : start + self.share])

    def publish_some(self, job: str, batch: MicroBatch, token: str, positions: list[int]) -> str:
        """Publish one entry."""
        blob = pack_results([self.result(job, batch.requests[i]) for i in positions])
        mask = sum(1 << i for i in positions)
        return self.claims.publish(job, [Publication(batch.mb, token, mask, blob)])[0]

    def result(self, job: str, request: Request) -> Result:
        """A made-up good result of `request`."""
        line = {
            "id": f"{job}-{request.seq}",
            "custom_id": request.custom_id,
            "line": request.line,
            "response": {"status_code": 200, "request_id": secrets.token_hex(4), "body": {"by": self.incarnation}},
            "error": None,
        }
        return Result(request.seq, request.round, 200, "", 1, 10, 5, orjson.dumps(line))
