"""vLLM's own OpenAI server as a process of its own on loopback: what our adapter must answer like."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import wait_until
from worker.engines.base import Answer
from worker.engines.cpu_dtype import read_cpuinfo, widen
from worker.engines.vllm_env import engine_environment

_MODULE = "vllm.entrypoints.openai.api_server"
"""What `vllm serve` runs; that itself asks for the version of a package `vllm`, and a CPU build is called otherwise."""
_START_S = 180


class OpenAiServer:
    """One running server; `post` asks it."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self._process = process
        self._port = port
        self._log = log

    def wait_ready(self) -> None:
        """Return once it answers."""
        wait_until(self._is_up, timeout_s=_START_S, description=f"vLLM's server is up; its log: {self._log}")

    def post(self, url: str, body: bytes) -> Answer:
        """One call, answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("POST", url, body, {"content-type": "application/json"})
            response = connection.getresponse()
            return Answer(response.status, response.read())
        finally:
            connection.close()

    def _is_up(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            return True
        return False


@contextmanager
def openai_server(model: Path, *flags: str, log: Path) -> Iterator[OpenAiServer]:
    """The server with `model` and `flags`, on its way up; ended with its children at the end."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    command = [sys.executable, "-m", _MODULE, "--model", str(model), "--host", "127.0.0.1", "--port", str(port), *flags]
    ours = Namespace(dtype="auto", model=str(model))
    if widen(ours, cpuinfo=read_cpuinfo()):
        command += ["--dtype", ours.dtype]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.update(engine_environment(environment, accelerator=False, cores=1, workers=1))
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        yield OpenAiServer(process, port, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
