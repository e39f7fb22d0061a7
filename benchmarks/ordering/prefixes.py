"""By shared prefix: the real engine, rows that share long system messages; a KV cache for all of them, or not."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.ordering.job import Ran, run_job, say, turns
from benchmarks.report import cpus
from benchmarks.rows import write_prefixes
from common.settings import Order
from tests.models import tiny_model
from tests.processes import SMALL_MODEL, environment, started_worker
from tests.servers import VALKEY, Server
from worker.engines.vllm_env import engine_environment

MODEL = "small"
PREFIXES, PREFIX_WORDS, ANSWER_TOKENS = 20, 400, 8
PLACES = 8
CACHES = {"small": "256M", "large": "2G"}
"""A prefix takes five blocks of 128 tokens, about 30 MB in float32: eight of them fill the small one."""
ORDERS: tuple[Order, ...] = ("input", "prefix")
ONE_ENGINE_S = 3_600


class Found(NamedTuple):
    """With one size of the cache."""

    alone: dict[str, float]
    """One bare engine, all rows at once."""
    fleet: dict[Order, list[Ran]]


def measure_prefixes(folder: Path, *, cache: str, rows: int, repeats: int, workers: int, quick: bool) -> Found:
    """A bare engine first, then a fleet of `workers`, warm, in each order; `quick`: a model of noise."""
    model, words = (tiny_model(), PREFIX_WORDS // 8) if quick else (SMALL_MODEL, PREFIX_WORDS)
    source = folder / f"prefixes-{cache}.jsonl"
    write_prefixes(source, rows, model=MODEL, prefixes=PREFIXES, prefix_words=words, tokens=ANSWER_TOKENS)
    alone = _run_alone(model, source, cache)
    say(f"{cache}, one engine", alone)
    fleet: dict[Order, list[Ran]] = {order: [] for order in ORDERS}
    with ExitStack() as open_:
        server = Server(VALKEY, folder / f"valkey-{cache}").start()
        open_.callback(server.stop)
        own = ("--model", model, "--served-model-name", MODEL, "--log-level", "warning")
        for number in range(workers):
            log = folder / f"worker-{cache}-{number}.log"
            open_.enter_context(started_worker(server, *own, "--", *_flags(cache), log=log))
        for repeat, order in turns(ORDERS, repeats=repeats):
            name = f"{cache}-{order}-{repeat}"
            salted = _salted(source, folder / f"{name}-in.jsonl", salt=name)
            fleet[order].append(run_job(server, folder, salted, order=order, name=name))
    return Found(alone, fleet)


def _flags(cache: str) -> list[str]:
    sizes = ["--max-model-len", "2048", "--kv-cache-memory-bytes", CACHES[cache], "--max-num-seqs", str(PLACES)]
    return [*sizes, "--dtype", "float32", "--enforce-eager", "--enable-prompt-tokens-details"]


def _run_alone(model: Path, source: Path, cache: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.ordering.one_engine", str(model), MODEL, str(source), "--"]
    variables = {**environment(), **engine_environment(environment(), accelerator=False, cores=cpus(), workers=1)}
    ended = subprocess.run(
        [*command, *_flags(cache)], env=variables, capture_output=True, text=True, timeout=ONE_ENGINE_S, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(f"the bare engine ended with {ended.returncode}:\n{ended.stderr[-3000:]}")
    said: dict[str, float] = json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("{")))
    return said


def _salted(rows: Path, target: Path, *, salt: str) -> Path:
    """`rows` with a salt that lets no other run's cached prefixes serve them."""
    with rows.open(encoding="utf-8") as source, target.open("w", encoding="utf-8") as file:
        for row in map(json.loads, source):
            row["body"]["cache_salt"] = salt
            file.write(json.dumps(row) + "\n")
    return target
