"""The command `worker`: verbs over one call each. Data to stdout, talk to stderr."""

import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_type_hints

import typer

from common.errors import BakehouseError, ExitCode
from common.log import configure
from common.password_warning import warn_of_shown
from common.settings import load
from common.talk import make_stderr_steady
from worker.cli_options import FlowerOptions, StartOptions
from worker.engines.hub_token import with_token_file
from worker.flower_page import run_flower
from worker.launch import plan_workers
from worker.node import find_groups, supervise

T = TypeVar("T")

app = typer.Typer(
    name="worker",
    help="Run warm engines that take their work from Redis: one process a GPU, or a group of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

START_HELP = """Start this node's workers and keep them running.

One process a GPU (or a group, with --tensor-parallel-size), pinned to it, with one warm engine. Workers find their work
in Redis by the served model's name: to scale, run the same command on one more node. A worker that dies is started
again after 1, 2, 4 ... 60 s; the work it held goes to the others.

Ctrl-C or SIGTERM drains: no more work is taken, what runs may finish for --drain-timeout seconds, the rest goes back to
the queue. A second Ctrl-C aborts what runs. Nothing is lost either way. With --exit-when-idle a node drains by itself
when none of its workers has had work for so long.

Exit codes: 0 drained, or idle · 2 refused before any work (flags, a Redis that would evict work) · 3 gave up (3 failed
starts in a row, 6 deaths with work held and no result between, an engine that can never start so, no Redis) · 130 after
a second Ctrl-C.
"""

START_EXAMPLES = """Examples:

* every GPU of this node; Redis on this machine: `worker start --model Qwen/Qwen3-8B`

* two GPUs, another name, another Redis:
  `worker start --model /models/qwen --served-model-name qwen --gpus 0,1 --redis-url redis://head:6379/0`

* four GPUs an engine, vLLM's own flags:
  `worker start --model /models/big --tensor-parallel-size 4 -- --max-model-len 8192`

* a rented node, which leaves when there is nothing to do:
  `worker start --model Qwen/Qwen3-8B --exit-when-idle 10m`

* a simulated engine, no GPU, no model: `worker start --engine sim --workers 2`
"""

FLOWER_HELP = """Show micro-batches as they pass the workers, in Flower.

A row is one micro-batch, never a prompt or an answer. Needs `pip install 'bakehouse[monitor]'`.
"""

FLOWER_EXAMPLES = """Examples:

* on this machine alone, http://127.0.0.1:5555: `worker flower`

* another Redis, another port: `worker flower --redis-url redis://head:6379/0 --port 8888`
"""


class Command(Generic[T]):
    """A verb of one parameter, a dataclass, as a command with a flag for each of its fields."""

    def __init__(self, options: type[T], verb: Callable[[T], None]) -> None:
        self._options = options
        self._verb = verb
        self.__signature__ = inspect.signature(options)
        self.__annotations__ = get_type_hints(options, include_extras=True)

    def __call__(self, **given: Any) -> None:
        self._verb(self._options(**given))


def start(given: StartOptions) -> None:
    """`worker start`: check the flags, then supervise until the end."""
    settings, options = given.settings(), given.worker_options()
    configure(level=settings.log_level, file=settings.log_file)
    warn_of_shown(given.redis_url)
    base = with_token_file(os.environ)
    groups = find_groups(options, gpus=given.gpus)
    cpu_workers = given.cpu_workers(groups=len(groups))
    plans = plan_workers(options, groups=groups, cpu_workers=cpu_workers, settings=settings, base=base)
    raise typer.Exit(supervise(plans, settings=settings, say=say))


def say(sentence: str) -> None:
    """Talk goes to stderr, each sentence under our name."""
    print(f"worker: {sentence}", file=sys.stderr, flush=True)


def flower(given: FlowerOptions) -> None:
    """`worker flower`: serve the page until it is stopped."""
    settings = load(given.config, redis_url=given.redis_url, redis_password_file=given.redis_password_file)
    configure(level=settings.log_level, file=settings.log_file)
    warn_of_shown(given.redis_url)
    flags = given.flower_flags or []
    run_flower(settings, port=given.port, host=given.host, basic_auth=given.login(), flags=flags)


app.command("start", help=START_HELP, epilog=START_EXAMPLES)(Command(StartOptions, start))
app.command("flower", help=FLOWER_HELP, epilog=FLOWER_EXAMPLES)(Command(FlowerOptions, flower))


def main() -> None:
    """Run one verb; ends the process with its exit code, 3 for every uncaught error."""
    make_stderr_steady()
    try:
        app()
    except BakehouseError as error:
        say(str(error))
        sys.exit(error.exit_code)
    except Exception:
        traceback.print_exc()
        sys.exit(ExitCode.NOT_FINISHED)


if __name__ == "__main__":
    main()
