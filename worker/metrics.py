"""What a worker counts while it runs lines: every metric with its unit and what to do when it is high.

Labels come from closed sets and never carry ids; each of their values is there from the start, at 0, so that
a rate is right from the first event. A retry is another attempt of one request by the worker that has it; a
redelivery is counted by the collector (`producer/metrics.py`).
"""

from prometheus_client import Counter, Gauge, Histogram

from common.errors import ErrorKind
from common.exposition import OUTCOMES
from worker.certificates import Cause

DIRECTIONS = ("prompt", "completion")
RETRY_KINDS = tuple(kind.value for kind in ErrorKind if kind.retryable)
CLAIM_ANSWERS = (
    *("GO", "BUSY", "GONE", "OTHER_MODEL", "NOJOB"),
    *("rebuilding", "paused", "cancelling", "sealed", "done"),
)

IN_FLIGHT = Gauge(
    "bakehouse_requests_in_flight",
    "Requests inside the engine of this worker now; up to one micro-batch above the target. When it is high, do this: "
    "nothing; far below the target with a backlog, look at the collector's window and at Redis.",
)
TARGET = Gauge(
    "bakehouse_requests_target",
    "Requests this worker wants in flight: 1.25 x what its engine runs at once, less after want of memory. When it is "
    "high, do this: lower --max-num-seqs if requests time out or the engine preempts.",
)
HOLDS = Gauge(
    "bakehouse_holds",
    "Micro-batches this worker holds now. When it is high, do this: raise the micro-batch size, each hold "
    "is renewed and costs a thread.",
)
RESULTS = Counter(
    "bakehouse_results_total",
    "Results this worker published, by outcome. When it is high, do this: for `ok` nothing; for any other "
    "outcome read errors.jsonl of the job and look the code up in the documentation.",
    ["outcome"],
)
TOKENS = Counter(
    "bakehouse_tokens_total",
    "Tokens in the results this worker published, by direction and outcome. When it is high, do this: "
    "tokens of an outcome other than `ok` are wasted, so find out why those requests fail.",
    ["direction", "outcome"],
)
REQUEST_SECONDS = Histogram(
    "bakehouse_request_seconds",
    "Seconds from a request's first attempt to its result, waits between attempts included. When it is "
    "high, do this: compare with max_tokens; lower --max-num-seqs or shorten answers before the request "
    "timeout is reached.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1800, 3600),
)
QUEUE_SECONDS = Histogram(
    "bakehouse_queue_seconds",
    "Seconds from a micro-batch's feeding to its first attempts. When it is high, do this: start more "
    "workers; work waits for a free place.",
    buckets=(0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400),
)
PUBLISH_SECONDS = Histogram(
    "bakehouse_publish_seconds",
    "Seconds one round of publishing to Redis took. When it is high, do this: look at Redis' CPU and at the"
    " network; a full disk or a slow disk under its append-only file shows here first.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
RETRIES = Counter(
    "bakehouse_retries_total",
    "Attempts after a request's first, by the kind of error that caused them. When it is high, do this: "
    "`timeout` raise --request-timeout or lower --max-num-seqs; `overloaded` and `engine_error` read the "
    "worker's log.",
    ["kind"],
)
CLAIMS = Counter(
    "bakehouse_claims_total",
    "Claims by the answer Redis gave. When it is high, do this: for `GO` nothing; many `BUSY` or `GONE` are"
    " doubled hints and harmless; many `OTHER_MODEL` mean that workers serve different builds under one "
    "name.",
    ["answer"],
)
DRAINS = Counter(
    "bakehouse_drains_total",
    "Drains this worker began. When it is high, do this: find out who stops workers; each drain hands work back.",
)
ENGINE_RESTARTS = Counter(
    "bakehouse_engine_restarts_total",
    "Times that this worker's process was started again with its engine since its supervisor began, by the cause of "
    "the death before. When it is high, do this: read the supervisor's log; `self` the engine or its work, `outside` "
    "somebody kills it, `left` its start failed or Redis was away.",
    ["cause"],
)

for _outcome in OUTCOMES:
    RESULTS.labels(_outcome)
    for _direction in DIRECTIONS:
        TOKENS.labels(_direction, _outcome)
for _kind in RETRY_KINDS:
    RETRIES.labels(_kind)
for _answer in CLAIM_ANSWERS:
    CLAIMS.labels(_answer)
for _cause in Cause:
    ENGINE_RESTARTS.labels(_cause.value)
