"""The kinds of faults, one a row of the kill matrix: what is done to which process, in which set-up."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.chaos import collector_faults, disk_faults, redis_faults, worker_faults
from benchmarks.chaos.arena import Arena
from benchmarks.chaos.shape import Shape
from benchmarks.chaos.strike import Strike

KILLED_S = 10.0
"""A killed process' work is running again by then, given a free place."""
VANISHED_S = 30.0
"""And that of a host of which nobody hears any more."""
FLOW_S = 30.0
"""After any fault, results come again by then."""

USUAL = Shape()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of fault."""

    fault: str
    process: str
    strike: Callable[[Arena], Strike]
    most: int = 2
    """Strikes a run."""
    redo_s: float = KILLED_S
    ends_workers: bool = False
    """Whether a worker process dies of it, so that blame is right."""
    shape: Shape = USUAL

    @property
    def name(self) -> str:
        """Fault and process."""
        return f"{self.fault}, {self.process}"


SHORT_DRAIN = ("--drain-timeout", "0.5")
REAL = Shape(is_real=True, rows=96, nodes=(2,), batch_size=4, verbs=("run",))

KINDS = (
    Kind(fault="kill -9", process="worker", strike=worker_faults.kill_worker, most=3, ends_workers=True),
    Kind(fault="SIGABRT", process="worker", strike=worker_faults.abort_worker, ends_workers=True),
    Kind(fault="kill -9", process="supervisor", strike=worker_faults.kill_supervisor, ends_workers=True),
    Kind(fault="SIGTERM (drain)", process="supervisor", strike=worker_faults.drain_node),
    Kind(
        fault="SIGTERM (drain of 0.5 s)",
        process="supervisor",
        strike=worker_faults.drain_node,
        shape=Shape(worker_flags=SHORT_DRAIN),
    ),
    Kind(fault="vanished for good", process="host", strike=worker_faults.vanish_host, most=1, redo_s=VANISHED_S),
    Kind(
        fault="frozen until its holds are lost",
        process="worker",
        strike=worker_faults.freeze_worker,
        most=1,
        redo_s=VANISHED_S,
    ),
    Kind(fault="kill -9", process="collector", strike=collector_faults.kill_collector, most=3),
    Kind(fault="SIGINT", process="collector", strike=collector_faults.interrupt_collector),
    Kind(fault="frozen", process="collector", strike=collector_faults.freeze_collector, most=1),
    Kind(
        fault="kill -9",
        process="run with its own Redis and workers",
        strike=collector_faults.kill_whole_run,
        ends_workers=True,
        shape=Shape(verbs=("embedded",), nodes=(2,)),
    ),
    Kind(
        fault="kill -9",
        process="enqueue",
        strike=collector_faults.kill_enqueue,
        most=1,
        shape=Shape(verbs=("enqueue",), rows=3_000, step_s=0.002, places=64),
    ),
    Kind(fault="frozen, all of them", process="every process", strike=collector_faults.sleep_all, most=1),
    Kind(fault="kill -9, data kept", process="Redis", strike=redis_faults.restart),
    Kind(fault="kill -9 twice in 5 s", process="Redis", strike=redis_faults.restart_twice, most=1),
    Kind(fault="kill -9, end of its log lost", process="Redis", strike=redis_faults.cut_log),
    Kind(fault="FLUSHALL", process="Redis", strike=redis_faults.flush),
    Kind(fault="replaced by an empty one", process="Redis", strike=redis_faults.replace),
    Kind(fault="frozen", process="Redis", strike=redis_faults.freeze, most=1),
    Kind(fault="ended (CLIENT KILL)", process="connections", strike=redis_faults.end_connections),
    Kind(
        fault="reset",
        process="connections",
        strike=redis_faults.reset_connections,
        shape=Shape(is_proxied=True),
    ),
    Kind(fault="lost replies", process="connections", strike=redis_faults.lose_replies, shape=Shape(is_proxied=True)),
    Kind(
        fault="disk full",
        process="journal",
        strike=disk_faults.fill_disk,
        most=1,
        shape=Shape(on_small_disk=("jobs",)),
    ),
    Kind(
        fault="disk full",
        process="ordered file",
        strike=disk_faults.fill_disk,
        most=1,
        shape=Shape(on_small_disk=("output",)),
    ),
    Kind(
        fault="disk full",
        process="Redis' append-only file",
        strike=disk_faults.fill_disk,
        most=1,
        shape=Shape(on_small_disk=("data",)),
    ),
    Kind(
        fault="power cut, unsynced writes lost",
        process="collector's host",
        strike=disk_faults.cut_power,
        shape=Shape(on_small_disk=("jobs", "output")),
    ),
    Kind(
        fault="memory full for some seconds",
        process="Redis",
        strike=redis_faults.fill,
        most=1,
        shape=Shape(job_flags=("--max-concurrency", "64")),
    ),
    Kind(
        fault="set by an hour",
        process="clock of every process",
        strike=redis_faults.step_clock,
        shape=Shape(is_clocked=True),
    ),
    Kind(fault="dropped", process="hints", strike=redis_faults.drop_hints),
    Kind(fault="tripled", process="hints", strike=redis_faults.double_hints),
    Kind(
        fault="killed by a line (SIGABRT)",
        process="worker",
        strike=worker_faults.meet_poison,
        most=1,
        ends_workers=True,
        shape=Shape(poison="abort", rows=120),
    ),
    Kind(
        fault="killed by a line (SIGKILL)",
        process="worker",
        strike=worker_faults.meet_poison,
        most=1,
        ends_workers=True,
        shape=Shape(poison="kill", rows=120),
    ),
)

REAL_KINDS = (
    Kind(
        fault="kill -9",
        process="worker, real engine",
        strike=worker_faults.kill_worker,
        most=1,
        ends_workers=True,
        shape=REAL,
    ),
    Kind(
        fault="kill -9",
        process="engine core, real engine",
        strike=worker_faults.kill_core,
        most=1,
        ends_workers=True,
        shape=REAL,
    ),
)
