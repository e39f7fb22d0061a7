"""Each service of docker-compose.yml runs its command as written, in the environment that its container would have.

No container engine is needed: one private host stands for them all, with their names, users, groups, folders and
secrets. What must be there by name is Debian's redis-server and prometheus.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.compose_file import COMPOSE, GIVEN, command_of, health_command, image_environment, our_services, read_compose
from tests.faults.private_host import PrivateHost, private_host
from tests.jobs import check_whole, write_requests
from tests.processes import ROOT, SMALL_MODEL, started
from tests.waiting import wait_until

pytestmark = pytest.mark.deploy

OURS, REDIS, NOBODY = 10001, 999, 65534
SECRETS = {"redis_password": "5ecret-of-redis", "flower_login": "cook:5ecret-of-flower", "hf_token": ""}
ROWS = 40
ENTRYPOINTS = {"prometheus": ["prometheus"]}
"""Of others' images; ours have none."""
SIMULATED = ("worker", "start", "--engine", "sim", "--served-model-name", "default")


class Stack:
    """The services on one private host."""

    def __init__(self, host: PrivateHost, compose: dict[str, Any], logs: Path) -> None:
        self.host = host
        self._compose = compose
        self.logs = logs

    def command(self, name: str, words: list[str]) -> list[str]:
        """`words` as the container of service `name` runs them."""
        service = self._compose["services"][name]
        image = {"HOME": "/tmp", **image_environment()} if name in our_services(self._compose) else {}
        user = OURS if image else REDIS if name == "redis" else NOBODY
        groups = [int(group) for group in service.get("group_add", [])]
        return self.host.command(words, user=user, groups=groups, environment=image | service.get("environment", {}))

    @contextmanager
    def running(self, name: str, words: list[str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Service `name`; by its own command, or by `words` in its place."""
        command = self.command(name, words or ENTRYPOINTS.get(name, []) + command_of(self._compose["services"][name]))
        with started(command, log=self.logs / f"{name}.log") as process:
            yield process

    def is_healthy(self, name: str) -> bool:
        """What its health check says."""
        asked = self.command(name, health_command(self._compose["services"][name]))
        return subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0

    def await_healthy(self, name: str, process: subprocess.Popen[bytes], *, timeout_s: float = 120) -> None:
        """Wait for it."""
        wait_until(
            lambda: process.poll() is not None or self.is_healthy(name),
            timeout_s=timeout_s,
            description=f"{name} is well",
        )
        assert process.poll() is None, f"{name} ended"

    def ask(self, name: str, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """`docker compose exec NAME WORDS`."""
        return subprocess.run(
            self.command(name, list(words)), input=given, capture_output=True, timeout=120, check=False
        )


@contextmanager
def stack_of(folder: Path, **variables: str) -> Iterator[Stack]:
    """The host with its secrets; nothing runs yet."""
    compose = read_compose(COMPOSE, **variables)
    with private_host(folder, names=list(compose["services"])) as host:
        for name, text in SECRETS.items():
            host.put(f"/run/secrets/{name}", text, mode=0o640, group=int(GIVEN["SECRETS_GID"]))
        yield Stack(host, compose, folder)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """All that runs without a model: Redis, collector, Flower, and a simulated worker in the CPU worker's place."""
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with stack_of(tmp_path_factory.mktemp("compose")) as stack, ExitStack() as running:
        stack.await_healthy("redis", running.enter_context(stack.running("redis")))
        processes = {name: running.enter_context(stack.running(name)) for name in ("collector", "flower")}
        processes["worker-cpu"] = running.enter_context(stack.running("worker-cpu", list(SIMULATED)))
        for name, process in processes.items():
            stack.await_healthy(name, process)
        yield stack


def test_a_job_runs_through_it(stack: Stack, tmp_path: Path) -> None:
    given = write_requests(tmp_path / "in.jsonl", ROWS).read_bytes()
    enqueued = stack.ask("collector", "producer", "enqueue", "-", "--fresh", given=given)
    assert enqueued.returncode == 0, enqueued.stderr
    job = enqueued.stdout.decode().strip()
    waited = stack.ask("collector", "producer", "wait", job, "--timeout", "90s")
    assert waited.returncode == 0, waited.stderr
    copy = tmp_path / "out.jsonl"
    copy.write_bytes(stack.ask("collector", "cat", f"/jobs/{job}/output/results.jsonl").stdout)
    check_whole(copy, ROWS)


def test_redis_is_closed_without_its_password(stack: Stack) -> None:
    assert b"NOAUTH" in stack.ask("redis", "redis-cli", "ping").stdout
    kept = stack.ask("redis", "sh", "-c", "REDISCLI_AUTH=$(cat /run/secrets/redis_password) redis-cli config get '*'")
    options = kept.stdout.decode().split("\n")
    assert options[options.index("appendonly") + 1] == "yes"
    assert options[options.index("maxmemory-policy") + 1] == "noeviction"


def test_no_process_shows_a_password(stack: Stack) -> None:
    shown = stack.host.command(["sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ"])
    seen = subprocess.run(shown, capture_output=True, timeout=60, check=False).stdout
    assert b"redis-server" in seen
    assert b"FLOWER_BASIC_AUTH_FILE" in seen
    assert b"5ecret" not in seen


def test_flower_asks_for_its_login(stack: Stack) -> None:
    fetch = ["wget", "-q", "-O", "-", "-S", "http://127.0.0.1:5555/api/workers"]
    assert b"401" in stack.ask("flower", *fetch).stderr
    shown = stack.ask("flower", *fetch, "--user=cook", "--password=5ecret-of-flower", "--auth-no-challenge")
    assert shown.returncode == 0, shown.stderr


@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")
def test_prometheus_finds_workers_and_collector(stack: Stack) -> None:
    for name in ("prometheus.yml", "rules.yml"):
        source = "compose.yml" if name == "prometheus.yml" else name
        stack.host.put(f"/etc/prometheus/{name}", (ROOT / "prometheus" / source).read_text())

    def roles() -> set[str]:
        found = stack.ask("prometheus", "wget", "-q", "-O", "-", "http://127.0.0.1:9090/api/v1/targets").stdout
        targets = json.loads(found or b"{}").get("data", {}).get("activeTargets", [])
        return {each["labels"]["role"] for each in targets if each["health"] == "up"}

    with stack.running("prometheus") as process:
        stack.await_healthy("prometheus", process)
        wait_until(lambda: roles() == {"worker", "collector"}, timeout_s=90, description="both are scraped")


def test_the_gpu_worker_says_that_there_is_no_gpu(stack: Stack) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has GPUs")
    with stack.running("worker") as process:
        assert process.wait(60) == 2
    said = (stack.logs / "worker.log").read_text()
    assert any(reason in said for reason in ("no GPU found", "vLLM is not installed")), said


@pytest.mark.engine
@pytest.mark.slow_engine
@pytest.mark.timeout(1000)  # a fresh container compiles everything anew
def test_the_cpu_worker_serves_a_model(tmp_path: Path) -> None:
    with stack_of(tmp_path, MODEL=str(SMALL_MODEL)) as stack, stack.running("redis") as redis:
        stack.await_healthy("redis", redis)
        with stack.running("collector"), stack.running("worker-cpu") as worker:
            ready = ["wget", "-q", "-O", "/dev/null", "http://127.0.0.1:9471/readyz"]
            wait_until(
                lambda: worker.poll() is not None or stack.ask("worker-cpu", *ready).returncode == 0,
                timeout_s=800,
                description="the worker is ready",
            )
            assert worker.poll() is None
            given = b'{"custom_id": "a", "model": "default", "prompt": "Once", "max_tokens": 4}\n'
            job = stack.ask("collector", "producer", "enqueue", "-", "--fresh", given=given).stdout.decode().strip()
            assert stack.ask("collector", "producer", "wait", job, "--timeout", "60s").returncode == 0
