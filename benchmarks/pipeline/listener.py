"""A listener to Celery's events, with Celery's own receiver and state: what Flower is beneath its pages.

`python -m benchmarks.pipeline.listener URL` turns events on, says `on` once one has come, and at SIGTERM how many came.
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.events.state import State

from common.broker import make_app
from common.settings import Settings
from tests.processes import environment
from tests.waiting import wait_until

MAX_TASKS = 10_000
"""As many as `worker flower` keeps."""
REPLY_S = 2.0
ON_S = 30.0


class Listener:
    """The process, as the benchmark sees it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def await_on(self) -> None:
        """Block until an event has come."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "on":
            raise SystemExit("the listener to events ended")

    def received(self, *, least: int) -> int:
        """End it; how many events came. Fewer than `least`: they were not on."""
        self._process.terminate()
        said, _ = self._process.communicate(timeout=ON_S)
        if int(said) < least:
            raise SystemExit(f"only {int(said)} events of {least} messages: events were not on")
        return int(said)


@contextmanager
def listening(url: str) -> Iterator[Listener]:
    """A listener on the server at `url`, whose workers send events from then on."""
    command = [sys.executable, "-m", "benchmarks.pipeline.listener", url]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        listener = Listener(process)
        listener.await_on()
        yield listener
    finally:
        process.kill()
        process.wait()


def main() -> int:
    """Listen until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    app = make_app(Settings(redis_url=parser.parse_args().url))
    wait_until(
        lambda: app.control.broadcast("enable_events", reply=True, limit=1, timeout=REPLY_S),
        timeout_s=ON_S,
        description="a worker turns its events on",
    )
    state, received = State(max_tasks_in_memory=MAX_TASKS), 0

    def receive(event: dict[str, Any]) -> None:
        nonlocal received
        received += 1
        state.event(event)
        if received == 1:
            print("on", flush=True)

    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": receive})
        signal.signal(signal.SIGTERM, lambda *_: setattr(receiver, "should_stop", True))
        receiver.capture()
    print(received)
    return 0


if __name__ == "__main__":
    sys.exit(main())
