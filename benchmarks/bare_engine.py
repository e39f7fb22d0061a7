"""The bare engine in a process of its own: the same engine and flags as a worker's, with nothing around it.

Reads one command a line from stdin (`all`, `batches 32`), answers one JSON line with seconds and output tokens.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker.engines.vllm_engine import VllmEngine


def main() -> int:
    """Serve measurements until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("served_model_name")
    parser.add_argument("rows", type=Path)
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    requests = [json.loads(line) for line in arguments.rows.read_text(encoding="utf-8").splitlines()]
    bodies = [json.dumps(request["body"]).encode() for request in requests]
    with asyncio.Runner() as runner:
        engine = VllmEngine(arguments.model, served_model_name=arguments.served_model_name, vllm_flags=arguments.flags)
        facts = runner.run(engine.start())
        say(ready=facts.name, concurrency=facts.concurrency)
        for command in sys.stdin:
            words = command.split()
            size = len(bodies) if words[0] == "all" else int(words[1])
            say(**runner.run(measure(engine, bodies, size)))
        runner.run(engine.stop())
    return 0


async def measure(engine: VllmEngine, bodies: Sequence[bytes], size: int) -> dict[str, Any]:
    """Post `bodies` in static groups of `size`, one group after the other."""
    began = time.monotonic()
    tokens = 0
    for first in range(0, len(bodies), size):
        calls = (engine.post("/v1/chat/completions", body) for body in bodies[first : first + size])
        for answer in await asyncio.gather(*calls):
            if answer.status != 200:
                raise SystemExit(f"status {answer.status}: {answer.body[:200]!r}")
            tokens += json.loads(answer.body)["usage"]["completion_tokens"]
    return {"seconds": time.monotonic() - began, "tokens": tokens}


def say(**fields: object) -> None:
    """One JSON line on stdout."""
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
