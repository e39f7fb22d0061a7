"""What spans cost a worker: its processor time a micro-batch without them and with them, and memory nobody takes.

`python -m benchmarks.spans`. The collector of spans is a process of its own.
"""

import argparse
import functools
import logging
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from common.wire import MicroBatch, Result
from tests.processes import memory_of
from tests.prometheus_server import free_port
from tests.scripted_engine import FACTS
from tests.span_collector import span_collector
from tests.worker_parts import make_batch
from worker.result_writer import WorkerIdentity
from worker.tracing import Tracing, start_tracing

WARM_UP = 200


def main() -> None:
    """Measure, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=32, help="Of each micro-batch.")
    parser.add_argument("--micro-batches", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    batch = make_batch(given.requests)
    results = [Result(request.seq, 0, 200, "", 1, 5, 16, b"") for request in batch.requests]
    for name, url in (
        ("without", None),
        ("sent", _start_collector()),
        ("to nobody", f"http://127.0.0.1:{free_port()}"),
    ):
        os.environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
        if url is not None:
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
        tracing = start_tracing(WorkerIdentity("host-0-00000001", FACTS))
        _measure(name, functools.partial(_tell, tracing, batch, results), given)
        tracing.close()


def _measure(name: str, tell: Callable[[], object], given: argparse.Namespace) -> None:
    for _ in range(WARM_UP):
        tell()
    before = memory_of(os.getpid()).bytes
    costs = []
    for _ in range(given.repeats):
        began = time.process_time()
        for _ in range(given.micro_batches):
            tell()
        costs.append((time.process_time() - began) / given.micro_batches * 1e6)
    grown = (memory_of(os.getpid()).bytes - before) / 2**20
    print(f"spans {name}: {statistics.median(costs):.1f} us a micro-batch of {given.requests}, +{grown:.1f} MiB")


def _tell(tracing: Tracing, batch: MicroBatch, results: list[Result]) -> None:
    """One micro-batch from its claim to its end, as the worker tells it."""
    trace = tracing.begin(batch, dlv=1)
    heard = trace.over(lambda position, result: None)
    trace.begun()
    for position, result in enumerate(results):
        heard(position, result)
    trace.ran()
    trace.end("published")


def _start_collector() -> str:
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=_collect, args=(theirs,), daemon=True).start()
    return str(ours.recv())


def _collect(pipe: Connection) -> None:
    with span_collector() as collector:
        pipe.send(collector.url)
        while True:
            time.sleep(1)
            collector.raw.clear()


if __name__ == "__main__":
    main()
