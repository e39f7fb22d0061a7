"""The bare engine in a process of its own: the same engine and flags as a worker's, with nothing around it.

Reads one command a line from stdin, WAY ROWS N, and answers one JSON line. `all`: every row of the file at once.
`kept`: at most N in flight. `batches`: in static micro-batches of N, one by one. `run-batch`: vLLM's own batch runner
on this engine, from its first line read to its output file written.
"""

import argparse
import asyncio
import importlib
import json
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.engine.steps import own_steps
from worker.engines.vllm_engine import VllmEngine

RUN_BATCH = "vllm.entrypoints.launchers.run_batch"


class Call(NamedTuple):
    """One row."""

    url: str
    body: bytes


class BareEngine:
    """One engine, and the ways to feed it; each returns all output tokens."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self.ended_s: list[float] = []
        """When each answer of the last run was there; monotonic."""

    async def at_once(self, calls: Sequence[Call]) -> int:
        """All at once."""
        return sum(await asyncio.gather(*map(self._post, calls)))

    async def kept(self, calls: Sequence[Call], most: int) -> int:
        """At most `most` in flight, the next one as soon as one ends."""
        places = asyncio.Semaphore(most)

        async def in_a_place(call: Call) -> int:
            async with places:
                return await self._post(call)

        return sum(await asyncio.gather(*map(in_a_place, calls)))

    async def one_by_one(self, calls: Sequence[Call], size: int) -> int:
        """In groups of `size`, one group after the other."""
        return sum([await self.at_once(calls[first : first + size]) for first in range(0, len(calls), size)])

    async def _post(self, call: Call) -> int:
        answer = await self._engine.post(call.url, call.body)
        self.ended_s.append(time.monotonic())
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}: {answer.body[:200]!r}")
        return tokens_of(json.loads(answer.body))


class BatchRunner:
    """vLLM's `run_batch` with its serving objects made beforehand, so that only its run is timed."""

    def __init__(self, module: Any, arguments: Namespace, client: Any) -> None:
        self._module = module
        self._arguments = arguments
        self._client = client

    @classmethod
    async def make(cls, engine: VllmEngine, *, model: str, name: str, flags: Sequence[str]) -> "BatchRunner":
        """On the engine that is already up."""
        module: Any = importlib.import_module(RUN_BATCH)
        parser = module.make_arg_parser(module.FlexibleArgumentParser())
        own = ["-i", "-", "-o", "-", "--model", model, "--served-model-name", name]
        arguments = parser.parse_args([*own, *flags])
        client = vars(engine)["_engine"]
        registry = await module.build_endpoint_registry(engine_client=client, args=arguments)

        async def made_before(**_: object) -> Any:
            return registry

        module.build_endpoint_registry = made_before
        return cls(module, arguments, client)

    async def run(self, rows: Path) -> int:
        """Run it over `rows`; output tokens."""
        with tempfile.TemporaryDirectory(prefix="bh-run-batch-") as folder:
            output = Path(folder) / "out.jsonl"
            self._arguments.input_file, self._arguments.output_file = str(rows), str(output)
            await self._module.run_batch(self._client, self._arguments)
            lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
        return sum(tokens_of(line["response"]["body"]) for line in lines)


class Bench:
    """What answers the commands."""

    def __init__(self, bare: BareEngine, make_runner: Callable[[], Awaitable[BatchRunner]]) -> None:
        self._bare = bare
        self._make_runner = make_runner
        self._runner: BatchRunner | None = None

    async def run(self, side: str, rows: Path, size: int) -> dict[str, Any]:
        """Seconds, output tokens and steps of one run, and when each answer was there; rows are read beforehand."""
        calls = read_calls(rows)
        if side == "run-batch":
            self._runner = self._runner or await self._make_runner()
        ways: dict[str, Callable[[], Awaitable[int]]] = {
            "all": lambda: self._bare.at_once(calls),
            "kept": lambda: self._bare.kept(calls, size),
            "batches": lambda: self._bare.one_by_one(calls, size),
            "run-batch": lambda: self._run_batch(rows),
        }
        self._bare.ended_s = []
        steps, began_s = own_steps(), time.monotonic()
        tokens = await ways[side]()
        seconds = time.monotonic() - began_s
        ended_s = [ended_s - began_s for ended_s in self._bare.ended_s]
        return {"seconds": seconds, "tokens": tokens, "steps": own_steps() - steps, "ended_s": ended_s}

    async def _run_batch(self, rows: Path) -> int:
        assert self._runner is not None
        return await self._runner.run(rows)


def read_calls(rows: Path) -> list[Call]:
    """Each row of a file."""
    requests = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    return [Call(request["url"], json.dumps(request["body"]).encode()) for request in requests]


def tokens_of(body: dict[str, Any]) -> int:
    """Output tokens of one answer; an embedding has none."""
    return body["usage"].get("completion_tokens") or 0


def main() -> int:
    """Serve measurements until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("served_model_name")
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    model, name, flags = arguments.model, arguments.served_model_name, arguments.flags
    with asyncio.Runner() as loop:
        engine = VllmEngine(model, served_model_name=name, vllm_flags=flags)
        facts = loop.run(engine.start())
        bench = Bench(BareEngine(engine), lambda: BatchRunner.make(engine, model=model, name=name, flags=flags))
        say(ready=facts.name, concurrency=facts.concurrency)
        for command in sys.stdin:
            side, rows, size = command.split()
            say(**loop.run(bench.run(side, Path(rows), int(size))))
        loop.run(engine.stop())
    return 0


def say(**fields: object) -> None:
    """One JSON line on stdout."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
