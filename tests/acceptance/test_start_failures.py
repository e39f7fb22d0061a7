"""Every way in which the real engine cannot start: one line says what is wrong and what to do, none is repeated.

The hub is a stand-in on the loopback interface that refuses as the real one does.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.errors import EngineStartError
from tests.acceptance.engine_thread import TINY_FLAGS
from tests.models import tiny_model
from tests.processes import ROOT, environment, live_workers, worker_command
from tests.servers import VALKEY, Server
from tests.stand_in_hub import stand_in_hub
from tests.waiting import wait_until
from worker.engines.vllm_engine import VllmEngine
from worker.engines.vllm_env import engine_environment

pytestmark = pytest.mark.engine

FAIL_S = 60.0
READY_S = 150.0
NOBODY = "http://127.0.0.1:9"


class Start:
    """One `worker start`, on its way."""

    def __init__(self, folder: Path, *arguments: object, **variables: str) -> None:
        folder.mkdir()
        self.log = folder / "worker.log"
        self.server = Server(VALKEY, folder / "data").start()
        self.began = time.monotonic()
        env = environment(XDG_CACHE_HOME=str(folder / "cache"), **variables)
        env = {name: value for name, value in env.items() if value}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                worker_command("start", "--redis-url", self.server.url, *arguments),
                env=env,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def reason(self) -> str:
        """Wait for its end, in time and after one try; the line in which the worker says why."""
        assert self.process.wait(FAIL_S) == 3
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith('{"')]
        stopped = [line for line in lines if line["event"] == "worker_stopped" and "reason" in line]
        assert [line["exit_code"] for line in stopped] == [78], "one start, and no other"
        assert "\n" not in stopped[0]["reason"]
        return str(stopped[0]["reason"])

    def is_ready(self) -> bool:
        """Whether its worker takes work."""
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return bool(live_workers(self.server))

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(40)
        self.server.stop()


def cached(home: Path) -> Path:
    """A hub's cache that holds the tiny model as `our/tiny`."""
    repository = home / "hub" / "models--our--tiny"
    shutil.copytree(tiny_model(), repository / "snapshots" / "0123456789abcdef")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123456789abcdef")
    return home


def without_a_shard(folder: Path) -> Path:
    """The tiny model, of whose two shards one is gone."""
    shutil.copytree(tiny_model(), folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_starts_that_can_never_succeed_and_one_without_network(tmp_path: Path) -> None:
    """All through `worker start`; those that need vLLM two at a time."""
    home = cached(tmp_path / "home")
    absent = Start(tmp_path / "absent", "--model", tmp_path / "nowhere")
    shard = Start(tmp_path / "shard", "--model", without_a_shard(tmp_path / "torn"))
    little = Start(tmp_path / "little", "--model", tiny_model(), "--", "--kv-cache-memory-bytes", "200K")
    offline = Start(
        tmp_path / "offline",
        *("--model", "our/tiny", "--", *TINY_FLAGS),
        HF_HOME=str(home),
        HF_ENDPOINT=NOBODY,
        HF_HUB_OFFLINE="",
    )
    try:
        assert "there is no model folder" in absent.reason()
        assert "1 of its weight files missing (model-00002-of-00002.safetensors)" in shard.reason()
        reason = little.reason()
        assert "larger than the available KV cache memory" in reason
        assert "decreasing `max_model_len`" in reason
        wait_until(offline.is_ready, timeout_s=READY_S, description=f"the engine is up; its log: {offline.log}")
        assert "Retrying" not in offline.log.read_text(), "nobody is asked who does not answer"
    finally:
        for start in (absent, shard, little, offline):
            start.close()


ATTEMPTS = {
    "gated": ("gated/m", "", "", "the model gated/m is gated - ask its owner for access"),
    "not on the list": ("forbidden/m", "", "hf_somebody", "the model forbidden/m is gated - ask its owner for access"),
    "expired token": ("expired/m", "", "hf_nobody", "the hub does not accept the token - set HF_TOKEN to one that"),
    "no such model": ("absent/m", "", "", "there is no model absent/m on the hub, or it is private - check the name"),
    "no such flag": ("", "--max-len", "", "vLLM does not accept these flags: unrecognized arguments: --max-len"),
    "no such value": ("", "--dtype=int3", "", "vLLM does not accept these flags: argument --dtype: invalid"),
}
"""Model (the tiny one), flag, token; and how the line begins that says what is wrong."""


def test_what_the_hub_and_vllm_refuse(tmp_path: Path) -> None:
    """In one process, since most of such a start is the import of vLLM."""
    with stand_in_hub() as url:
        env = environment(HF_HOME=str(tmp_path), HF_ENDPOINT=url, PYTHONPATH=str(ROOT))
        env.pop("HF_HUB_OFFLINE")
        command = [sys.executable, "-P", "-m", "tests.acceptance.test_start_failures"]
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=READY_S, check=True)
    said = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"')]
    assert [attempt["name"] for attempt in said] == list(ATTEMPTS)
    for attempt in said:
        assert attempt["line"].startswith(ATTEMPTS[attempt["name"]][3])
        assert "\n" not in attempt["line"]
        assert attempt["permanent"]
        assert attempt["took_s"] < FAIL_S


def main() -> None:
    """Try each start, and print a line of JSON about how it failed."""
    os.environ.update(engine_environment(os.environ, accelerator=False, cores=1, workers=1))
    for name, (model, flag, token, _) in ATTEMPTS.items():
        os.environ["HF_TOKEN"] = token
        began = time.monotonic()
        engine = VllmEngine(model or str(tiny_model()), vllm_flags=[flag] if flag else [])
        try:
            asyncio.run(engine.start())
        except EngineStartError as error:
            took_s = time.monotonic() - began
            print(json.dumps({"name": name, "line": str(error), "permanent": error.permanent, "took_s": took_s}))


if __name__ == "__main__":
    main()
