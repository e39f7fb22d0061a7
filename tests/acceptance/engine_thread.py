"""One engine in a loop of its own, in a thread that lives as long as it: how a worker hosts it, for tests."""

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.models import tiny_model
from worker.engines.base import Answer, Engine, EngineFacts
from worker.engines.sim_engine import SimEngine
from worker.engines.vllm_engine import VllmEngine
from worker.engines.vllm_env import engine_environment

_T = TypeVar("_T")
MODEL = "test-model"
CHAT = "/v1/chat/completions"
TINY_FLAGS = ("--kv-cache-memory-bytes", str(64 << 20), "--max-num-seqs", "16", "--max-logprobs", "20")


class EngineThread:
    """An engine, up; its coroutines run in its thread, seen from here as futures."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()
        self.facts: EngineFacts = self.run(engine.start(), timeout_s=120)

    def submit(self, work: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Start `work` in the engine's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, _T], *, timeout_s: float = 60) -> _T:
        """What `work` returns, run in the engine's loop."""
        return self.submit(work).result(timeout_s)

    def post(self, body: bytes | dict[str, Any], url: str = CHAT) -> Answer:
        """One call, answered."""
        return self.run(self.engine.post(url, body if isinstance(body, bytes) else json.dumps(body).encode()))

    def start_post(self, body: dict[str, Any]) -> "Future[Answer]":
        """One chat call, on its way."""
        return self.submit(self.engine.post(CHAT, json.dumps(body).encode()))

    def close(self) -> None:
        """Stop the engine, then its loop and thread."""
        self.run(self.engine.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def chat(text: str = "Say ok.", **parameters: Any) -> dict[str, Any]:
    """The body of one chat call; 8 tokens at temperature 0 unless told otherwise."""
    message = {"role": "user", "content": text}
    return {"model": MODEL, "messages": [message], "max_tokens": 8, "temperature": 0, **parameters}


@contextmanager
def hosted(kind: str) -> Iterator[EngineThread]:
    """The engine of that `kind`, `sim` or `vllm` with the tiny model, served as `test-model`."""
    if kind == "sim":
        host = EngineThread(SimEngine("token", seconds=0.002, places=16, served_model_name=MODEL))
        yield host
        host.close()
        return
    with vllm_host(tiny_model(), *TINY_FLAGS) as host:
        yield host


@contextmanager
def vllm_host(model: Path, *flags: str, **variables: str) -> Iterator[EngineThread]:
    """The real engine with `model`, served as `test-model`, in this process and the environment of a worker."""
    before = dict(os.environ)
    os.environ.update({"HF_HUB_OFFLINE": "1", "VLLM_API_KEY": "a key for a port that is not there", **variables})
    os.environ.update(engine_environment(os.environ, accelerator=False, cores=1, workers=1))
    try:
        host = EngineThread(VllmEngine(str(model), served_model_name=MODEL, vllm_flags=flags))
        yield host
        host.close()
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    """Host the real engine, print a line with its core's pid, and keep requests in flight until killed."""
    with hosted("vllm") as host:
        import psutil

        host.start_post(chat(max_tokens=1500, ignore_eos=True))
        children = psutil.Process().children(recursive=True)
        print(json.dumps([child.pid for child in children]), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
