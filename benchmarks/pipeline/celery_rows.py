"""Plain Celery, one task a row: `delay` for each line, then `get` of each result in order.

Keeps: a row whose worker dies comes again, after the visibility timeout. Loses: everything when the client ends, for it
alone knows the ids of its results; what a worker had fetched and not begun when it was killed; all that the server had
not yet synced. Nothing is on disk but the server's own log, and the output once it is written.
"""

import sys
from collections.abc import Iterable, Iterator

from celery import Celery

from benchmarks.pipeline.celery_side import Run, answer, main, make_app


def app_of(url: str) -> tuple[Celery, Run]:
    """The app with its one task, and the client."""
    app = make_app("celery_rows", url)
    answer_row = app.task(answer, name="answer_row")

    def run(lines: Iterable[str]) -> Iterator[str]:
        pending = [answer_row.delay(line) for line in lines]
        for result in pending:
            yield result.get()

    return app, run


if __name__ == "__main__":
    sys.exit(main(app_of, __doc__))
