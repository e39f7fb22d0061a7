"""One bare engine that gets all rows at once, in a process of its own: what its prefix cache hits by itself.

Prints one JSON line: seconds, and the share of prompt tokens that came from the cache.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.ordering.job import hit_share
from worker.engines.vllm_engine import VllmEngine


async def run(engine: VllmEngine, calls: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Post every row at once."""
    await engine.start()
    began_s = time.monotonic()
    posts = [engine.post(call["url"], json.dumps(call["body"]).encode()) for call in calls]
    answers = await asyncio.gather(*posts)
    seconds = time.monotonic() - began_s
    usages: list[dict[str, Any]] = [json.loads(answer.body)["usage"] for answer in answers]
    await engine.stop()
    return {"seconds": seconds, "hits": hit_share(usages)}


def main() -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("served_model_name")
    parser.add_argument("rows", type=Path)
    parser.add_argument("flags", nargs="*")
    given = parser.parse_args()
    calls = [json.loads(line) for line in given.rows.read_text(encoding="utf-8").splitlines()]
    engine = VllmEngine(given.model, served_model_name=given.served_model_name, vllm_flags=given.flags)
    with asyncio.Runner() as loop:
        print(json.dumps(loop.run(run(engine, calls))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
