"""What both plain Celery programs share: an app with a result backend, one worker with a pool of threads, the answer.

It is the set-up of Celery's own documentation for Redis: JSON, late acks, a result for each task. Redis alone holds
what is queued and what came back: the program's own memory knows which results are still to come, so that after a crash
of it a job begins anew, and a message that a killed worker had comes again after the visibility timeout of an hour.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
from celery import Celery

from benchmarks.pipeline.fleet import server_in
from benchmarks.pipeline.measured import Measured, check_results, run_timed
from common.broker import celery_url
from tests.processes import started
from tests.waiting import wait_until
from worker.engines.base import Answer
from worker.engines.sim_answers import read_call

THREADS = 8
READY_S = 60.0
Run = Callable[[Iterable[str]], Iterator[str]]
"""A program: the lines of the input to the lines of the output, in order."""


def make_app(name: str, url: str) -> Celery:
    """An app on the server at `url`, its tasks not yet registered."""
    app = Celery(name, broker=url, backend=url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_acks_late=True,
        broker_connection_retry_on_startup=True,
    )
    return app


def answer(line: str) -> str:
    """The result of a request, by what the simulated engine does without a cost."""
    request = orjson.loads(line)
    call = read_call(request["url"], orjson.dumps(request["body"]), served=None)
    answered = call if isinstance(call, Answer) else call.answer(call.limit or 1)
    response = {"status_code": answered.status, "body": orjson.loads(answered.body)}
    return orjson.dumps({"custom_id": request["custom_id"], "response": response, "error": None}).decode()


def main(app_of: Callable[[str], tuple[Celery, Run]], description: str | None) -> int:
    """`worker URL`: serve. `run URL INPUT OUTPUT`: give all rows, collect all results in order."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("what", choices=["worker", "run"])
    parser.add_argument("url")
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    app, run = app_of(arguments.url)
    if arguments.what == "worker":
        app.worker_main(["worker", "--pool", "threads", "--concurrency", str(THREADS), "--loglevel", "WARNING"])
        return 0
    source, output = arguments.files
    with source.open(encoding="utf-8") as requests, output.open("w", encoding="utf-8") as results:
        results.writelines(line + "\n" for line in run(requests))
    return 0


def measure_celery(
    name: str, folder: Path, requests: Path, *, rows: int, rows_a_message: int = 1, server_options: tuple[str, ...] = ()
) -> Measured:
    """The rows through `benchmarks.pipeline.NAME` in `folder`, once; its worker is ready beforehand."""
    folder.mkdir()
    output = folder / "results.jsonl"
    program = [sys.executable, "-m", f"benchmarks.pipeline.{name}"]
    with ExitStack() as open_:
        server, server_pid = open_.enter_context(server_in(folder, *server_options))
        url = celery_url(server.url)
        worker = open_.enter_context(started([*program, "worker", url], log=folder / "worker.log"))
        asking = make_app(name, url)
        wait_until(
            lambda: worker.poll() is not None or asking.control.ping(timeout=1.0, limit=1),
            timeout_s=READY_S,
            description=f"a worker of {name}",
        )
        seconds, usage = run_timed(
            [*program, "run", url, str(requests), str(output)],
            role="client",
            beside={"worker": worker.pid, "redis": server_pid},
            log=folder / "run.log",
        )
    check_results(output, rows=rows)
    return Measured(rows, -(-rows // rows_a_message), seconds, usage)
