"""What a collector counts while it feeds lines and settles results: each metric, its unit and what to do.

Labels come from closed sets and never carry ids; each of their values is there from the start, at 0. The gauges are
copies of what the journal and Redis say, and the journal stays the truth. They sum over the jobs that a process owns at
once (`collect --all`), each of which sets its own (`job_gauges`).
"""

from typing import get_args

from prometheus_client import Counter, Gauge, Histogram

from common.exposition import OUTCOMES
from producer import bottleneck
from producer.job_gauges import JobsGauge

HINT_REASONS = ("new", "redelivery", "unclaimed", "repair", "suspect", "left")
"""First hint of a micro-batch; after a lost hold; ready and long unclaimed; offered again after lost data; a suspect's
turn to travel alone; left in Redis by a collector that ended before its job."""

DIRECTIONS = ("prompt", "completion")

BACKLOG = Gauge(
    "bakehouse_backlog_requests",
    "Requests of this process's jobs without a result; those not read yet are estimated from the input's bytes. When "
    "it is high, do this: start more workers, or wait; it falls by results per second.",
)
WINDOW_REQUESTS = Gauge(
    "bakehouse_window_requests",
    "Requests of this process's jobs that are fed and have no result. When it is high, do this: nothing up to "
    "bakehouse_window_limit_requests; at it with idle workers, raise window_requests or max_concurrency.",
)
WINDOW_LIMIT = Gauge(
    "bakehouse_window_limit_requests",
    "Requests that this process's jobs may have fed and without a result: their share of the window. When it is high, "
    "do this: nothing; it follows the fleet's capacity.",
)
WINDOW_BYTES = Gauge(
    "bakehouse_window_bytes",
    "Bytes of payload and expected results outstanding in Redis for this process's jobs. When it is high, "
    "do this: nothing up to window_bytes; near it with idle workers, raise window_bytes and Redis' "
    "maxmemory.",
)
JOURNALED = Counter(
    "bakehouse_journaled_results_total",
    "Results journaled, by outcome. When it is high, do this: for `ok` nothing; for any other outcome read "
    "errors.jsonl of the job.",
    ["outcome"],
)
REDELIVERIES = Counter(
    "bakehouse_redeliveries_total",
    "Micro-batches given out again after a hold was lost. When it is high, do this: workers die or freeze; "
    "read the supervisor's log for the cause.",
)
POISON = Counter(
    "bakehouse_poison_total",
    "Requests proved to kill their worker's process, each a result `worker_lost`. When it is high, do this: read "
    "errors.jsonl for the lines and the supervisor's log for how the processes ended; without them the engine itself "
    "is broken.",
)
DUPLICATES = Counter(
    "bakehouse_duplicates_total",
    "Results that came a second time and were dropped. When it is high, do this: holds are lost while the "
    "work goes on; look for frozen workers, slow Redis or a network that cuts.",
)
FRONTIER_LAG = Gauge(
    "bakehouse_frontier_lag_requests",
    "Results journaled and not yet in the ordered file, since an earlier request is unfinished. When it is "
    "high, do this: find the slowest request (`producer status`); it costs disk in the journal, nothing "
    "else.",
)
JOURNAL_SECONDS = Histogram(
    "bakehouse_journal_seconds",
    "Seconds one synced commit of results to the journal took. When it is high, do this: move the job "
    "directory to a faster local disk.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
HINTS = Counter(
    "bakehouse_hints_total",
    "Hints sent, by reason. When it is high, do this: for `new` nothing; `redelivery` see redeliveries; "
    "`unclaimed` hints get lost or no worker serves the model; `repair` Redis lost data, check its append-"
    "only file; `suspect` a request was in two workers that died, see poison; `left` nothing.",
    ["reason"],
)
DONE = Gauge(
    "bakehouse_done_requests",
    "Requests of this process's jobs that have a result, those of earlier collectors too. When it is high, do this: "
    "nothing; with bakehouse_backlog_requests it makes all of them.",
)
JOB_TOKENS = Gauge(
    "bakehouse_job_tokens",
    "Tokens in the results of this process's jobs, those of earlier collectors too, by direction. When it is high, do "
    "this: shorten prompts, or lower max_tokens.",
    ["direction"],
)
BOTTLENECK = Gauge(
    "bakehouse_bottleneck_jobs",
    "Jobs of this process that this holds up now. When it is high, do this: `engines` and `tail` nothing; for the "
    "others `producer status JOB` says what to do.",
    ["name"],
)
OLDEST_HINT = JobsGauge(
    "bakehouse_oldest_hint_seconds",
    "Seconds since the oldest hint was sent that no worker has come to yet, of this process's jobs; 0 where none "
    "waits. When it is high, do this: start more workers of its model; hints beyond 160 s are sent again.",
    combine=max,
)
LEFT = JobsGauge(
    "bakehouse_left_seconds",
    "Seconds to the estimated end, of the job that ends last; absent while that cannot be told. When it is high, do "
    "this: start more workers.",
    combine=max,
)
GPU_SECONDS = JobsGauge(
    "bakehouse_job_gpu_seconds",
    "Seconds that GPUs worked for this process's jobs, those of earlier collectors too. When it is high, do this: "
    "compare tokens a second with the target of `worker tune`, or take a smaller model.",
    combine=sum,
)
COST = JobsGauge(
    "bakehouse_job_cost",
    "What those seconds cost at gpu_hourly_cost, in its currency; absent without that knob. When it is high, do this: "
    "as for bakehouse_job_gpu_seconds.",
    combine=sum,
)
DEADLINE_MARGIN = JobsGauge(
    "bakehouse_deadline_margin_seconds",
    "Seconds between the estimated end and the deadline, of the job that has the least; below 0 it will be late, and "
    "absent without a deadline. When it is high, do this: nothing; below 0, start as many workers as `producer status` "
    "names, or pause other jobs.",
    combine=min,
)

for _outcome in OUTCOMES:
    JOURNALED.labels(_outcome)
for _reason in HINT_REASONS:
    HINTS.labels(_reason)
for _direction in DIRECTIONS:
    JOB_TOKENS.labels(_direction)
for _name in get_args(bottleneck.Name):
    BOTTLENECK.labels(_name)
