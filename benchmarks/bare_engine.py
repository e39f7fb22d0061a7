"""The bare engine in a process of its own: the same engine and flags as a worker's, with nothing around it.

Reads one command a line from stdin and answers one JSON line with seconds and output tokens. `all`: every row at once.
`kept N`: at most N rows in flight. `batches N ROWS`: the first ROWS rows in static micro-batches of N, one by one.
`run-batch`: vLLM's own batch runner on this engine, from its first line read to its output file written.
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
from typing import Any

from worker.engines.vllm_engine import VllmEngine

RUN_BATCH = "vllm.entrypoints.launchers.run_batch"


class BareEngine:
    """One engine, the rows, and the ways to feed it."""

    def __init__(self, engine: VllmEngine, rows: Path) -> None:
        self._engine = engine
        requests = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
        self._bodies = [json.dumps(request["body"]).encode() for request in requests]

    async def at_once(self) -> int:
        """All rows at once; output tokens."""
        return await self._post(self._bodies)

    async def kept(self, most: int) -> int:
        """At most `most` rows in flight, the next one as soon as one ends; output tokens."""
        places = asyncio.Semaphore(most)

        async def in_a_place(body: bytes) -> int:
            async with places:
                return await self._post([body])

        return sum(await asyncio.gather(*map(in_a_place, self._bodies)))

    async def one_by_one(self, size: int, rows: int) -> int:
        """The first `rows` rows in groups of `size`, one group after the other; output tokens."""
        bodies = self._bodies[:rows]
        return sum([await self._post(bodies[first : first + size]) for first in range(0, len(bodies), size)])

    async def _post(self, bodies: Sequence[bytes]) -> int:
        tokens = 0
        for answer in await asyncio.gather(*(self._engine.post("/v1/chat/completions", body) for body in bodies)):
            if answer.status != 200:
                raise SystemExit(f"status {answer.status}: {answer.body[:200]!r}")
            tokens += json.loads(answer.body)["usage"]["completion_tokens"]
        return tokens


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
        return sum(line["response"]["body"]["usage"]["completion_tokens"] for line in lines)


def main() -> int:
    """Serve measurements until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("served_model_name")
    parser.add_argument("rows", type=Path)
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    model, name, flags = arguments.model, arguments.served_model_name, arguments.flags
    with asyncio.Runner() as loop:
        engine = VllmEngine(model, served_model_name=name, vllm_flags=flags)
        facts = loop.run(engine.start())
        bare = BareEngine(engine, arguments.rows)
        runner = loop.run(BatchRunner.make(engine, model=model, name=name, flags=flags))
        say(ready=facts.name, concurrency=facts.concurrency)
        for command in sys.stdin:
            side, *numbers = command.split()
            ways: dict[str, Callable[..., Awaitable[int]]] = {
                "all": bare.at_once,
                "kept": bare.kept,
                "batches": bare.one_by_one,
                "run-batch": lambda: runner.run(arguments.rows),
            }
            say(**loop.run(timed(ways[side](*map(int, numbers)))))
        loop.run(engine.stop())
    return 0


async def timed(run: Awaitable[int]) -> dict[str, float]:
    """Seconds and tokens of `run`."""
    began = time.monotonic()
    tokens = await run
    return {"seconds": time.monotonic() - began, "tokens": tokens}


def say(**fields: object) -> None:
    """One JSON line on stdout."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
