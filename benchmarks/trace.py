"""How full the engine was while a job ran: requests in flight, ten samples a second, from the worker's metrics port."""

import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

SAMPLE_S = 0.1
IN_FLIGHT = re.compile(r"^bakehouse_requests_in_flight (\S+)$", re.MULTILINE)
RESULTS = re.compile(r"^bakehouse_results_total\{[^}]*\} (\S+)$", re.MULTILINE)
PORT = re.compile(r'"port": ?(\d+)')


@dataclass(frozen=True)
class Sample:
    """One look; `left` counts rows without a published result, so it lags by up to a second and never says too few."""

    t_s: float
    in_flight: int
    left: int


class Trace:
    """The samples of one run."""

    def __init__(self, samples: list[Sample], *, rows: int, concurrency: int) -> None:
        first = next((i for i, sample in enumerate(samples) if sample.in_flight), 0)
        last = next((i for i, sample in enumerate(samples) if sample.left == 0), len(samples))
        self.samples = samples[first : last + 1]
        self._began_s = self.samples[0].t_s if self.samples else 0.0
        self._rows = rows
        self._concurrency = concurrency

    def full_after_s(self) -> float:
        """From the first request in flight to the first full engine."""
        full = [sample.t_s for sample in self.samples if sample.in_flight >= self._concurrency]
        return full[0] - self._began_s if full else float("inf")

    def under(self) -> int:
        """Samples, once the engine was full, in which it was not, though twice its concurrency of rows was left."""
        full_at_s = self._began_s + self.full_after_s()
        return sum(
            sample.in_flight < self._concurrency
            for sample in self.samples
            if sample.t_s >= full_at_s and sample.left >= 2 * self._concurrency
        ) + (full_at_s == float("inf"))

    def write(self, path: Path) -> None:
        """One JSON line a sample."""
        with path.open("w", encoding="utf-8") as file:
            for sample in self.samples:
                file.write(json.dumps(asdict(sample) | {"t_s": round(sample.t_s - self._began_s, 3)}) + "\n")


@contextmanager
def tracing(worker_log: Path, *, rows: int) -> Iterator[list[Sample]]:
    """Sample the worker whose log says its metrics port until the end of `with`."""
    found = PORT.search(worker_log.read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit("the worker's log names no metrics port")
    url = f"http://127.0.0.1:{found[1]}/metrics"
    _, before = look(url)
    samples: list[Sample] = []
    ended = threading.Event()

    def follow() -> None:
        next_s = began_s = time.monotonic()
        while not ended.is_set():
            in_flight, results = look(url)
            samples.append(Sample(time.monotonic() - began_s, in_flight, rows - (results - before)))
            next_s = max(next_s + SAMPLE_S, time.monotonic())
            ended.wait(next_s - time.monotonic())

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    yield samples
    ended.set()
    thread.join()


def look(url: str) -> tuple[int, int]:
    """Requests in flight, and results published so far."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        text = answer.read().decode()
    in_flight = IN_FLIGHT.search(text)
    assert in_flight is not None, "the worker does not say how many requests are in flight"
    return int(float(in_flight[1])), int(sum(float(figure) for figure in RESULTS.findall(text)))
