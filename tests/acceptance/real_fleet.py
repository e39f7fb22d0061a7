"""A node of two workers with the real engine and a tiny model, and what befalls it: for tests of deaths and signals.

It is started once for all tests that ask for it and starts its dead again by itself, as every supervisor does; only
what a test has ended for good is started anew.
"""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil

from common import keys
from common.settings import Settings
from tests.acceptance.engine_thread import MODEL, TINY_FLAGS
from tests.collecting import Bench, Running
from tests.faults.memory_group import MemoryGroup
from tests.models import tiny_model
from tests.processes import alive, await_gone, descendants, environment, live_workers, worker_command
from tests.servers import VALKEY, Server
from tests.waiting import wait_until

READY_S = 150.0
"""An engine is up in about 15 s on a quiet machine."""
HANG_S = 10.0
"""A core that is told to end takes 5 to 7 s, and makes no step in them: that is no hang."""


class Life:
    """One incarnation with its engine core."""

    def __init__(self, incarnation: str, worker: psutil.Process) -> None:
        self.incarnation = incarnation
        self.worker = worker
        self.core = engine_core(worker)
        self.processes = [worker, *worker.children(recursive=True)]


class RealFleet:
    """The supervisor, its workers, and the jobs they are given."""

    def __init__(self, folder: Path, *, group: MemoryGroup | None = None) -> None:
        self.folder = folder
        self._group = group
        self.server = Server(VALKEY, folder / "data").start()
        self.client = self.server.client()
        self.log = folder / "workers.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.started: list[psutil.Process] = []
        """Everything that was ever seen below a supervisor."""
        self._jobs = 0

    def start(self, *, workers: int = 2) -> subprocess.Popen[bytes]:
        """Start the node; returns its supervisor."""
        command = worker_command(
            *("start", "--redis-url", self.server.url, "--model", tiny_model(), "--served-model-name", MODEL),
            *("--workers", workers, "--drain-timeout", 20, "--", *TINY_FLAGS),
        )
        knobs = {"BAKEHOUSE_HANG_S": f"{HANG_S:g}", "BAKEHOUSE_PRESENCE_S": "0.5", "BAKEHOUSE_PUBLISH_S": "0.2"}
        if self._group is not None:
            command = self._group.joined(command)
        env = environment(XDG_CACHE_HOME=str(self.folder / "cache"), **knobs)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, env=env, stdout=output, stderr=output, start_new_session=True)
        return self.process

    def ready(self, *, workers: int = 2) -> list[Life]:
        """Both lives, once their engines are up; the node is started if it has ended."""
        if self.process is None or self.process.poll() is not None:
            self.start(workers=workers)
        wait_until(
            lambda: len(live_workers(self.server)) >= workers or self.process_ended,
            timeout_s=READY_S,
            description=f"{workers} engines are up; their log: {self.log}",
        )
        assert not self.process_ended, self.last_words()
        lives = []
        for key in sorted(live_workers(self.server)):
            pid = int(self.client.hget(key, "pid") or 0)
            lives.append(Life(key.removeprefix(keys.WORKER_PREFIX), psutil.Process(pid)))
        self.started += [process for life in lives for process in life.processes]
        return lives

    @property
    def supervisor(self) -> subprocess.Popen[bytes]:
        """The one started last."""
        assert self.process is not None
        return self.process

    def workers(self) -> list[psutil.Process]:
        """The worker processes, also of engines that still start."""
        return psutil.Process(self.supervisor.pid).children()

    def cores(self) -> list[psutil.Process]:
        """Engine cores, also those that still start."""
        return [child for worker in self.workers() for child in worker.children() if is_engine_core(child)]

    @property
    def process_ended(self) -> bool:
        """Whether the supervisor is gone."""
        return self.process is None or self.process.poll() is not None

    def job(self, rows: int, *, max_tokens: int, text: str = "row", **knobs: Any) -> "Job":
        """Start a job of `rows` equal requests, each of exactly `max_tokens` tokens."""
        self._jobs += 1
        return Job(self, self.folder / f"job-{self._jobs}", rows, max_tokens=max_tokens, text=text, **knobs)

    def cause(self, life: Life) -> str | None:
        """What the certificate of `life` says, once there is one."""
        said = self.client.hget(keys.DIED, life.incarnation)
        return said.decode() if isinstance(said, bytes) else said

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of one event, of supervisor and workers."""
        lines = self.log.read_text(errors="replace").splitlines()
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in parsed if line.get("event") == name]

    def last_words(self) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-4000:]

    def await_no_process(self) -> None:
        """Wait until nothing that was ever started still runs."""
        await_gone(self.started)

    def draining(self) -> list[str]:
        """Keys of the workers that say so."""
        names = [key.decode() for key in self.client.scan_iter(keys.WORKER_PREFIX + "*")]
        return [name for name in names if self.client.hget(name, "state") == b"draining"]

    def stop(self) -> None:
        """Drain the node."""
        self.supervisor.terminate()
        self.supervisor.wait(40)

    def close(self) -> None:
        """End all of it."""
        if self.process is not None:
            self.started += descendants(self.process.pid)
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
        for process in self.started:
            if alive(process):
                process.kill()
        self.server.stop()


class Job:
    """A job of equal requests and its collector, in a thread."""

    def __init__(self, fleet: RealFleet, folder: Path, rows: int, *, max_tokens: int, text: str, **knobs: Any) -> None:
        folder.mkdir()
        source = folder / "in.jsonl"
        with source.open("w") as file:
            for i in range(rows):
                body = {
                    "model": MODEL,
                    "messages": [{"role": "user", "content": f"{text} {i}"}],
                    **{"max_tokens": max_tokens, "ignore_eos": True, "temperature": 0},
                }
                line = {"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}
                file.write(json.dumps(line) + "\n")
        self.fleet = fleet
        self.rows, self.max_tokens = rows, max_tokens
        settings = Settings(redis_url=fleet.server.url, **{"batch_size": 4, "look_s": 0.5, **knobs})
        self.bench = Bench(folder, fleet.server, source, model=MODEL, settings=settings)
        self.running = Running(self.bench.collector())

    def held_by(self, life: Life) -> int:
        """Micro-batches that `life` holds."""
        look = self.bench.claims.look(self.bench.job)
        return sum(seen.st == "HELD" and seen.worker == life.incarnation for seen in look.micro_batches.values())

    def await_held(self, *lives: Life) -> None:
        """Wait until each of `lives` holds some of it, and the first results are out."""
        wait_until(
            lambda: all(self.held_by(life) for life in lives), timeout_s=60, description="all have some of the job"
        )

    def results(self) -> list[dict[str, Any]]:
        """The ordered file's whole lines so far; one may be just being written."""
        path = self.bench.directory.output_path
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def stop(self) -> None:
        """Stop its collector; the job stays as it is."""
        self.running.collector.stop()
        wait_until(lambda: not self.running.alive(), timeout_s=10, description="the collector stops")

    def check_answers(self, results: list[dict[str, Any]]) -> None:
        """Every one is whole: not cut short, not taken for the request's own failure."""
        for result in results:
            body = result["response"]["body"]
            assert result["error"] is None
            assert body["choices"][0]["finish_reason"] == "length"
            assert body["usage"]["completion_tokens"] == self.max_tokens
            assert result["meta"]["attempts"] == 1

    def await_good(self, *, timeout_s: float = 2 * READY_S) -> list[dict[str, Any]]:
        """The results, every one whole: nothing was lost, doubled, cut short, or taken for the request's failure."""
        outcome = self.running.join(timeout_s=timeout_s)
        results = self.bench.results()
        assert outcome.exit_code == 0, [result for result in results if result["error"]][:3]
        self.bench.check_whole(self.rows)
        self.check_answers(results)
        return results


def engine_core(worker: psutil.Process) -> psutil.Process:
    """The engine core of `worker`; its title or, while it starts, how it was spawned. Raises `StopIteration`."""
    return next(child for child in worker.children() if is_engine_core(child))


def is_engine_core(process: psutil.Process) -> bool:
    """vLLM's children are spawned by multiprocessing; its resource tracker is none of them."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return any("spawn_main" in word or word.startswith("VLLM::") for word in words)
