"""Steps of an engine so far, as vLLM's own metrics count them: in this process, and in a worker's by its port."""

import re
import urllib.request

from prometheus_client import generate_latest

COUNT = re.compile(r"^vllm:iteration_tokens_total_count\{[^}]*\} (\S+)$", re.MULTILINE)


def own_steps() -> int:
    """Of the engine in this process."""
    return steps_in(generate_latest().decode())


def served_steps(port: int) -> int:
    """Of the worker whose metrics are served there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return steps_in(answer.read().decode())


def steps_in(metrics: str) -> int:
    """In the text of a metrics page."""
    return int(sum(float(count) for count in COUNT.findall(metrics)))
