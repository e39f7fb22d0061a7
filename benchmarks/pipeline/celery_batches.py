"""Plain Celery, a task for each 32 rows, which travel in the message: `delay`, then `get` of each result in order.

The server keeps no log either: nothing is on disk but the output once it is written. Keeps: what a dead worker had
comes again, after the visibility timeout and 32 rows at a time. Loses: everything when the client or the server ends.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice

from celery import Celery

from benchmarks.pipeline.celery_side import Run, answer, main, make_app

SIZE = 32
NO_DISK = ("--appendonly", "no")
"""Of the server."""


def answer_each(lines: list[str]) -> list[str]:
    """The task."""
    return [answer(line) for line in lines]


def app_of(url: str) -> tuple[Celery, Run]:
    """The app with its one task, and the client."""
    app = make_app("celery_batches", url)
    answer_rows = app.task(answer_each, name="answer_rows")

    def run(lines: Iterable[str]) -> Iterator[str]:
        source = iter(lines)
        pending = [answer_rows.delay(batch) for batch in iter(lambda: list(islice(source, SIZE)), [])]
        for results in pending:
            yield from results.get()

    return app, run


if __name__ == "__main__":
    sys.exit(main(app_of, __doc__))
