"""A stopwatch over something that should move: the watchdog's, for engine, loop, queues and work. Pure."""


class Stillness:
    """How long something has stood still: a pure stopwatch over values and times that it is shown."""

    def __init__(self) -> None:
        self._value: object = None
        self._seen_at = 0.0
        self._still_s = 0.0

    def seconds(self, value: object, *, now: float, counts: bool = True, keeps: bool = False) -> float:
        """For how long `value` has been the same while `counts` was true; `keeps`: with the times before a pause."""
        if value != self._value or not (counts or keeps):
            self._value, self._still_s = value, 0.0
        elif counts:
            self._still_s += now - self._seen_at
        self._seen_at = now
        return self._still_s
