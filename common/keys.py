"""Every key Bakehouse writes in Redis, as a function. The layout is written here and nowhere else.

| key                              | type   | written by                | read by            | lifetime              |
|----------------------------------|--------|---------------------------|--------------------|-----------------------|
| `bakehouse:{JOB}:info`           | hash   | collector; `want` by CLI  | all                | 7 days; 1 h once done |
| `bakehouse:{JOB}:open`           | set    | offer, close              | look               | 7 days; unlinked      |
| `bakehouse:{JOB}:mb:<n>`         | hash   | offer, claim, publish ... | worker, janitor    | 7 days; while open    |
| `bakehouse:{JOB}:results`        | stream | publish                   | receiver           | 7 days; unlinked      |
| `bakehouse:died`                 | hash   | supervisor                | janitor            | a field an hour       |
| `bakehouse:worker:<incarnation>` | hash   | worker, every 5 s         | collector, status  | 20 s; ends with it   |
| `bakehouse:collector:<name>`     | hash   | metrics ports, every 5 s  | discovery          | 20 s; ends with it    |
| `bakehouse:jobs`                 | hash   | collector                 | status, collectors | as long as its job    |
| `bakehouse.q.<model>[@<digest>]` | list   | collector (by Celery)     | workers            | gone when empty       |

The braces are Redis hash tags. Fields of `mb:<n>`: `st` (READY, HELD, FULL), `tok`, `wk`, `beat`, `armed`, `n`,
`got`, `z`, `dlv`, `kind`; of `info`: `state`, `epoch`, `want`, `heard`, `reason`, `mb_high`, `manifest`, `mixed`,
`digest:<model>`, `seen`, the counts, `outlook`, `exit` and `status`; of an entry in `results`: `mb`, `z`.
"""

from common.wire import WIRE_VERSION

JOB_LIFETIME_S = 7 * 24 * 3600
DONE_LIFETIME_S = 3600
WORKER_LIFETIME_S = 20
"""Of every heartbeat, a collector's too."""
DIED_LIFETIME_S = 24 * 3600

DIED = "bakehouse:died"
JOBS = "bakehouse:jobs"
WORKER_PREFIX = "bakehouse:worker:"
COLLECTOR_PREFIX = "bakehouse:collector:"
QUEUE_PREFIX = "bakehouse.q." if WIRE_VERSION == 1 else f"bakehouse.q{WIRE_VERSION}."
"""A queue for each wire version, so that workers of two on one Redis do not take each other's hints."""


def prefix(job: str) -> str:
    """What stands before every key of one job."""
    return f"bakehouse:{{{job}}}:"


def info(job: str) -> str:
    """The job's state, counts and manifest."""
    return prefix(job) + "info"


def open_set(job: str) -> str:
    """Numbers of the micro-batches that have a hash."""
    return prefix(job) + "open"


def micro_batch(job: str, mb: int) -> str:
    """One micro-batch while it is open."""
    return f"{prefix(job)}mb:{mb}"


def results(job: str) -> str:
    """Exactly the entries not yet journaled."""
    return prefix(job) + "results"


def worker(incarnation: str) -> str:
    """The heartbeat of one life of one worker process."""
    return WORKER_PREFIX + incarnation


def collector(name: str) -> str:
    """The heartbeat of one process that owns jobs and has a metrics port."""
    return COLLECTOR_PREFIX + name


def queue(model: str, digest: str | None = None) -> str:
    """The Celery queue of a served model, or of exactly one build of it."""
    return f"{QUEUE_PREFIX}{model}@{digest}" if digest else QUEUE_PREFIX + model
