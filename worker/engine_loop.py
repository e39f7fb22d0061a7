"""The one asyncio loop of a worker, in a background thread that lives as long as the process: the engine runs here.

vLLM's children die with the thread that made them, so the engine is made in this one and nowhere else.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class EngineLoop:
    """A running loop and its thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine-loop", daemon=True)

    def start(self) -> None:
        """Run until `stop`."""
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, _T]) -> "concurrent.futures.Future[_T]":
        """Run `coroutine` in the loop; from any other thread. Its `result()` blocks."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call `function` in the loop, soon; from any thread and from signal handlers: takes no lock."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def call_later(self, delay_s: float, function: Callable[[], object]) -> None:
        """Call `function` in the loop after `delay_s` seconds; from any thread."""
        self.call(self._loop.call_later, delay_s, function)

    def every(self, interval_s: float, function: Callable[[], object]) -> None:
        """Call `function` in the loop every `interval_s` seconds for as long as the loop itself moves on."""

        def beat() -> None:
            self._loop.call_later(interval_s, beat)
            function()

        self.call(beat)

    def stop(self) -> None:
        """End the loop and its thread; blocks. What still runs in it is dropped."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
