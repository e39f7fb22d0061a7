"""What `worker start` does on one node, from checked flags to its exit code: find Redis, then supervise."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import redis

from common.broker import check_server, make_client, redis_url
from common.errors import ExitCode, RefusedError, StoppedError
from common.log import Event, get_logger, redact
from common.settings import Settings
from worker.certificates import Cause, certify
from worker.gpu import group, list_gpus, select
from worker.gpu_claim import claim_free
from worker.launch import Plan
from worker.oom import OomWatch, find_oom_file
from worker.options import WorkerOptions
from worker.roster import Roster, default_folder
from worker.signal_inbox import SignalInbox
from worker.supervisor import REMIND_S, Supervisor

REDIS_CALL_S = 2.0
"""A supervisor must answer signals and deaths meanwhile, so it waits less for a call than a worker does."""
RETRY_S = 1.0

log = get_logger(__name__)


def find_groups(options: WorkerOptions, *, gpus: str | None) -> list[tuple[str, ...]]:
    """The GPU groups that `--gpus` means, [] for workers on the CPU. Raises `RefusedError`.

    Not given: every GPU for vLLM where there are any, none for the simulated engine.
    """
    wanted = gpus or ("none" if options.engine == "sim" else "all")
    if wanted == "none":
        return []
    found = list_gpus()
    if wanted == "free":
        return [tuple(claim_free(found, size=options.tensor_parallel_size, folder=default_folder().parent / "gpus"))]
    devices = select(wanted, found=found, environment=os.environ)
    if gpus == "all" and not devices:
        raise RefusedError("no GPU found", where="--gpus all", do="--gpus none for workers on the CPU")
    return group(devices, size=options.tensor_parallel_size)


def supervise(plans: Sequence[Plan], *, settings: Settings, say: Callable[[str], None]) -> ExitCode:
    """Run the node's workers until they are told to leave or gave up. Blocks; from the main thread only.

    Raises `RefusedError` for a Redis on which work could be lost, `StoppedError` when none is there for
    `give_up_after_s`.
    """
    inbox = SignalInbox()
    url = redis_url(settings)
    client = make_client(url, socket_timeout_s=min(REDIS_CALL_S, settings.socket_timeout_s))
    version = wait_for_server(client, url=url, give_up_after_s=settings.give_up_after_s, inbox=inbox, say=say)
    if version is None:
        return ExitCode.OK
    roster = Roster(redis_url=url)
    certify_abandoned(client, roster=roster)
    names = ", ".join(plan.name for plan in plans)
    say(f"starting {len(plans)} worker(s) [{names}] on {redact(url)} ({version}); Ctrl-C drains")
    return Supervisor(
        plans,
        client=client,
        roster=roster,
        inbox=inbox,
        oom=OomWatch(find_oom_file()),
        drain_timeout_s=settings.drain_timeout_s,
        give_up_after_s=settings.give_up_after_s,
        exit_when_idle_s=settings.exit_when_idle_s,
        say=say,
    ).run()


def wait_for_server(
    client: redis.Redis, *, url: str, give_up_after_s: float, inbox: SignalInbox, say: Callable[[str], None]
) -> str | None:
    """The server's version, once it answers; None when a signal ended the wait. Says what it waits for.

    Raises `RefusedError`, and `StoppedError` after `give_up_after_s` seconds (0: never).
    """
    began = time.monotonic()
    remind_at = began
    while True:
        try:
            return check_server(client, url=url)
        except StoppedError as error:
            now = time.monotonic()
            if 0 < give_up_after_s <= now - began:
                raise
            if now >= remind_at:
                log.warning(Event.REDIS_LOST, reason=error.what)
                say(f"waiting for Redis at {redact(url)}: {error.what}")
                remind_at = now + REMIND_S
        inbox.wait(RETRY_S)
        if inbox.take():
            return None


def certify_abandoned(client: redis.Redis, *, roster: Roster) -> None:
    """Certify the workers of supervisors that are gone, and end what they left running.

    The cause is `outside`, unless their supervisor knew it and Redis took no certificate from it.
    """
    for entry in roster.abandoned():
        orphans = roster.end_orphans(entry)
        cause = entry.cause or Cause.OUTSIDE
        certify(client, entry.incarnation, cause)
        with suppress(OSError):  # certified again by the next supervisor, which does no harm
            roster.settle(entry)
        if orphans or cause is not Cause.LEFT:  # else its supervisor has said how it left
            log.warning(Event.WORKER_DIED, worker=entry.incarnation, cause=cause.value, orphans=len(orphans))
