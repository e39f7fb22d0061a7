"""What a worker's heartbeat says of its work: tokens so far and a second, busy seconds, memory. Beside a line's way."""

import contextlib
from collections.abc import Sequence

import psutil

from worker.gpu_metrics import Device

STRETCH_S = 4.0
"""Tokens a second are those of at least so long: beats may follow each other at once."""


class Throughput:
    """One life's."""

    def __init__(self, gpus: Sequence[Device] = ()) -> None:
        """`gpus`: those of this worker whose memory can be asked for."""
        self._gpus = gpus
        self._then: tuple[float, int] | None = None
        self._per_s = 0.0

    def fields(self, *, tokens: int, busy_s: float, now_s: float) -> dict[str, str | int]:
        """For the heartbeat at `now_s` (monotonic)."""
        return {
            "tokens": tokens,
            "tokens_per_s": f"{self.per_s(tokens, now_s=now_s):.1f}",
            "busy_s": f"{busy_s:.1f}",
            "memory_bytes": memory_bytes(),
            "gpu_memory_bytes": sum(used for used, _ in self._gpu_memory()),
        }

    def _gpu_memory(self) -> list[tuple[int, int]]:
        return [memory for gpu in self._gpus if (memory := gpu.memory()) is not None]

    def per_s(self, tokens: int, *, now_s: float) -> float:
        """Tokens a second since the last beat but those that came very close."""
        if self._then is None:
            self._then = now_s, tokens
        then_s, before = self._then
        if now_s - then_s >= STRETCH_S:
            self._per_s = (tokens - before) / (now_s - then_s)
            self._then = now_s, tokens
        return self._per_s


def memory_bytes() -> int:
    """What this process and the engine's hold in this host's memory."""
    total = 0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total
