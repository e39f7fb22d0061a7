"""What `--help` says of each verb of `producer`: what it does, how it ends, examples."""

from typing import NamedTuple

SUMMARY = """Turn a file of LLM requests into a file of ordered results.

Exit codes: 0 all good · 1 finished, and some result is not 200 · 2 refused before any work · 3 not finished, go on with
`producer resume JOB` · 130 interrupted, likewise.
"""


class Text(NamedTuple):
    """Help of one verb."""

    help: str
    examples: str


RUN = Text(
    """Run a file of requests to its end, with a progress bar and a summary.

With no Redis given it brings an embedded Valkey and one local worker along, and stops both at the end. With --redis-url
or BAKEHOUSE_REDIS_URL the fleet that is there does the work.

The same command again goes on with a job that stopped, and says again what a finished one came to. Ctrl-C once lets
what runs finish; twice ends at once. Nothing is lost either way.

Lines from standard input or a pipe, and those of a followed file, run as they come. A pipe that was cut is read on when
the same command gets the same input again from its beginning; `producer resume` runs only what came of it.
""",
    """Examples:

* a model in a folder, on this machine: `producer run requests.jsonl -o results.jsonl --model ./models/smollm2`

* no model at all, answers made up: `producer run requests.jsonl -o results.jsonl --engine sim`

* flags for vLLM: `producer run requests.jsonl --model Qwen/Qwen3-8B -- --max-model-len 8192`

* a fleet: `producer run requests.jsonl -o results.jsonl --redis-url redis://head:6379/0`

* all results by the next seven o'clock; a coming miss is said early, with the workers that would avert it:
  `producer run requests.jsonl -o results.jsonl --redis-url redis://head:6379/0 --deadline 07:00`

* lines as they come, until none has for ten minutes:
  `producer run --follow requests.jsonl --engine sim --until-idle 10m`
""",
)

ENQUEUE = Text(
    """Put the first part of a file of requests into Redis; prints the job id, and nothing else, on stdout.

The rest follows as results come back, fed by a collector: `producer collect JOB`. The same command again enqueues
nothing twice. Standard input and pipes are read to their end.
""",
    """Examples:

* `JOB=$(producer enqueue requests.jsonl -o results.jsonl --redis-url redis://head:6379/0)`

* a name of your own: `producer enqueue requests.jsonl --job-id nightly-2026-11-30 --tag team=search`
""",
)

COLLECT = Text(
    """Own a job until it is done: feed it, take in its results, write them in order. One collector a job.

With --all every unfinished job in the folder of jobs, at once; with --follow it stays and takes up new ones.
""",
    """Examples:

* `producer collect "$JOB" --redis-url redis://head:6379/0`

* as a service: `producer collect --all --follow`
""",
)

PAUSE = Text(
    """Pause a job, from any host that reaches its Redis: workers finish what they run and take no more of it.

A `run` or `collect JOB` of it ends with 3 once all results are in. `producer resume JOB` lifts it.
""",
    """Examples:

* `producer pause nightly-2026-11-30`
""",
)

CANCEL = Text(
    """Cancel a job for good, from any host that reaches its Redis.

What is finished stays, what runs is stopped, and all that is left gets `cancelled` results.

On the job's own host, where no process works on it, the command does so itself and ends when it is cancelled.
""",
    """Examples:

* `producer cancel nightly-2026-11-30`
""",
)

RESUME = Text(
    """Go on with a job, whatever stopped it. A pause is lifted from any host that reaches its Redis.

On the job's own host, where no process works on it, the command does so until the job is done. A job that brought its
own Redis and worker along brings them along again. A finished job only says what it came to.
""",
    """Examples:

* `producer resume 20261130-141503-3f9a2c`
""",
)

RERUN = Text(
    """Run requests of a finished job once more, in the same job; on its own host, in the foreground.

Without an option all that are not 200. Options narrow each other: `--code timeout --ids FILE` is what timed out among
the ids in FILE. Lines that never became a request are left out, and said.

The ordered file, errors.jsonl, the counts and the exit code become what they are then; the ordered file from before
is kept as results.1.jsonl, the next one as results.2.jsonl. What stopped in its middle goes on by the same command,
or by `producer resume JOB`.
""",
    """Examples:

* what failed: `producer rerun nightly-2026-11-30`

* after a bad deploy: `producer rerun nightly-2026-11-30 --status 5xx`

* one kind of failure: `producer rerun nightly-2026-11-30 --code timeout --code worker_lost`

* good ones too, by name: `producer rerun nightly-2026-11-30 --ids ids.txt`
""",
)

STATUS = Text(
    """How jobs stand, and which workers are live: from any host that reaches Redis, else from the folder of jobs.

With --watch it stays and shows rate, expected end, margin to the deadline, workers, failures, last events, and by name
what holds the job up; without a terminal a line a minute. --json has tokens, GPU seconds and tags of each job, and with
--gpu-hourly-cost what it costs.
""",
    """Examples:

* `producer status`

* on a terminal, until it is over: `producer status nightly-2026-11-30 --watch`

* what each job has cost, for a program: `producer status --json --gpu-hourly-cost 2.50`

* one job, for a program: `producer status nightly-2026-11-30 --json`
""",
)

GET = Text(
    """Print the result line of one request, on the job's own host. Ends with 1 where there is no such request, 3 where
it has no result yet.""",
    """Examples:

* `producer get nightly-2026-11-30 request-17`
""",
)

WAIT = Text(
    """Block until a job is over, and exit as it did: 0, 1, or 3 when it is paused. From any host that reaches Redis; on
the job's own host also without.

It changes nothing: the job goes on when this ends, by Ctrl-C (130) or --timeout (3). What keeps a job from going on, as
no collector being alive, is said within seconds and every minute.
""",
    """Examples:

* a script on another host: `producer wait nightly-2026-11-30 && ./publish.sh`

* at most two hours: `producer wait "$JOB" --timeout 2h`

* what it came to, for a program: `producer wait "$JOB" --json`
""",
)

TARGETS = Text(
    """What Prometheus is to scrape: the metrics ports of live workers and collectors, as JSON for its discovery.

With --metrics-port it stays and answers at `/targets`, so that a node that joins is scraped without an edit. Every
collector with a metrics port answers there too; this verb is for fleets where none is always there.
""",
    """Examples:

* once: `producer targets --redis-url redis://head:6379/0`

* for `http_sd_configs` of Prometheus: `producer targets --redis-url redis://head:6379/0 --metrics-port 9470`
""",
)
