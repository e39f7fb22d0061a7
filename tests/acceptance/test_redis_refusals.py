"""Servers on which work could be lost, and addresses of none: every command refuses them, exit 2, and says why."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.stand_in_redis import StandInRedis
from tests.jobs import only_job, write_requests
from tests.processes import environment, producer_command, run_producer, worker_command
from tests.servers import Server

Command = Callable[[Path, str], list[str]]


def _run(folder: Path, url: str) -> list[str]:
    return producer_command("run", folder / "in.jsonl", "--jobs", folder / "jobs", "--redis-url", url)


def _enqueue(folder: Path, url: str) -> list[str]:
    return producer_command("enqueue", folder / "in.jsonl", "--jobs", folder / "jobs", "--redis-url", url)


def _collect(folder: Path, url: str) -> list[str]:
    return producer_command("collect", only_job(folder / "jobs"), "--jobs", folder / "jobs", "--redis-url", url)


def _worker(_folder: Path, url: str) -> list[str]:
    return worker_command("start", "--engine", "sim", "--redis-url", url)


def refusal(command: list[str]) -> str:
    """What `command` says when it refuses."""
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr.strip().splitlines()[-1]


def check_refused(folder: Path, url: str, *words: str) -> None:
    """Every command that would put work on the server at `url`, or take it there, refuses it, with `words`."""
    write_requests(folder / "in.jsonl", 3)
    for command in (_run, _enqueue, _collect, _worker):
        said = refusal(command(folder, url))
        for word in words:
            assert word in said


@pytest.mark.case
def test_case_a23a_an_evicting_policy(any_own_server: Server, tmp_path: Path) -> None:
    policy = "allkeys-lru" if "valkey" in any_own_server.binary else "volatile-ttl"
    any_own_server.client().config_set("maxmemory-policy", policy)
    check_refused(tmp_path, any_own_server.url, policy, "noeviction")


def test_a_wrong_password_and_none(any_own_server: Server, tmp_path: Path) -> None:
    any_own_server.client().config_set("requirepass", "right-one")
    write_requests(tmp_path / "in.jsonl", 3)
    wrong = any_own_server.url.replace("unix://", "unix://:wrong-one@")
    for command, url in ((_run, any_own_server.url), (_run, wrong), (_worker, wrong)):
        said = refusal(command(tmp_path, url))
        assert "refuses the login" in said
        assert "wrong-one" not in said


def test_an_old_version(tmp_path: Path) -> None:
    with StandInRedis(version="6.2.14", knows_hello=True) as old:
        check_refused(tmp_path, old.url, "redis 6.2.14 is too old", "7.0")
        assert old.asked >= 4, "nobody asked for its version"


def test_a_version_so_old_that_it_does_not_even_say_so(tmp_path: Path) -> None:
    write_requests(tmp_path / "in.jsonl", 3)
    with StandInRedis(version="5.0.7", knows_hello=False) as old:
        said = refusal(_run(tmp_path, old.url))
        assert "HELLO" in said
        assert "Redis 7.0 or newer" in said


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:6379", "127.0.0.1:6379", "redis://127.0.0.1:port/0", "redis://127.0.0.1:1/0?no_such=1"]
)
def test_no_address_of_a_redis(tmp_path: Path, url: str) -> None:
    write_requests(tmp_path / "in.jsonl", 3)
    for command in (_run, _worker) if url.startswith("http") else (_run,):
        said = refusal(command(tmp_path, url))
        assert "no address of a Redis server" in said
        assert "redis://" in said


def test_nobody_at_the_address_is_no_refusal(tmp_path: Path) -> None:
    source, jobs = write_requests(tmp_path / "in.jsonl", 3), tmp_path / "jobs"
    for url in ("redis://127.0.0.1:1/0", "redis://no-such-host.invalid:6379/0"):
        ended = run_producer("run", source, "--redis-url", url, "--jobs", jobs)
        assert ended.returncode == 3
        assert "Redis cannot be reached" in ended.stderr
        assert ended.stderr.rstrip().endswith(f"continue: producer resume {only_job(jobs)}")
