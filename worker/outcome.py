"""What a hint came to, in counts and tokens: the task's return value, which Celery tells Flower as text."""

from collections.abc import Iterable

from common.wire import Result


class Outcome:
    """Of one hint that is done with. Written out only when its text is asked for."""

    __slots__ = ("_reason", "_results")

    def __init__(self, results: Iterable[Result] = (), *, reason: str = "") -> None:
        """`results`: those made here. `reason`: why nothing was to be done."""
        self._results = results
        self._reason = reason

    def __repr__(self) -> str:
        results = list(self._results)
        errors = sum(result.code != "" for result in results)
        tokens = sum(result.completion_tokens for result in results)
        return f"results={len(results)} errors={errors} tokens={tokens}" + (
            f" ({self._reason})" if self._reason else ""
        )
