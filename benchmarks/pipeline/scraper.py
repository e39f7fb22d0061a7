"""Who reads metrics: a thread that gets each port's `/metrics` as often as the project's Prometheus does."""

import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

SCRAPE_S = 5.0
"""`scrape_interval` in prometheus/prometheus.yml."""


@contextmanager
def scraping(ports: Sequence[int]) -> Iterator[list[int]]:
    """Scrape at once and from then on until the end of `with`; yields the bytes of each page that came.

    A port that nobody serves yet is passed over.
    """
    ended, pages = threading.Event(), list[int]()

    def follow() -> None:
        while not ended.is_set():
            for port in ports:
                with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                    pages.append(len(page.read()))
            ended.wait(SCRAPE_S)

    thread = threading.Thread(target=follow, daemon=True)
    if ports:
        thread.start()
    try:
        yield pages
    finally:
        ended.set()
        if ports:
            thread.join()
