"""The kinds of faults, one a row of the kill matrix: what is done to which process, in which set-up."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

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


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    fault: str
    process: str
    strike: Callable[[Arena], Strike]
    _: KW_ONLY
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


SHORT_DRAIN = Shape(worker_flags=("--drain-timeout", "0.5"))
OWN_RUN = "run with its own Redis and workers"
OWN_SERVER = Shape(verbs=("embedded",), nodes=(2,))
STRUCK_ENQUEUE = Shape(verbs=("enqueue",), rows=3_000, step_s=0.002, places=64)
PROXIED = Shape(is_proxied=True)
CLOCKED = Shape(is_clocked=True)
FEW_AT_A_TIME = Shape(job_flags=("--max-concurrency", "64"))
JOURNAL_DISK = Shape(on_small_disk=("jobs",))
OUTPUT_DISK = Shape(on_small_disk=("output",))
SERVER_DISK = Shape(on_small_disk=("data",))
COLLECTOR_DISK = Shape(on_small_disk=("jobs", "output"))
ABORTING = Shape(poison="abort", rows=120)
KILLING = Shape(poison="kill", rows=120)
REAL = Shape(is_real=True, rows=48, nodes=(2,), batch_size=1, verbs=("run",))

KINDS = (
    Kind("kill -9", "worker", worker_faults.kill_worker, most=3, ends_workers=True),
    Kind("SIGABRT", "worker", worker_faults.abort_worker, ends_workers=True),
    Kind("kill -9", "supervisor", worker_faults.kill_supervisor, ends_workers=True),
    Kind("SIGTERM (drain)", "supervisor", worker_faults.drain_node),
    Kind("SIGTERM (drain of 0.5 s)", "supervisor", worker_faults.drain_node, shape=SHORT_DRAIN),
    Kind("vanished for good", "host", worker_faults.vanish_host, most=1, redo_s=VANISHED_S),
    Kind("frozen until its holds are lost", "worker", worker_faults.freeze_worker, most=1, redo_s=VANISHED_S),
    Kind("kill -9", "collector", collector_faults.kill_collector, most=3),
    Kind("SIGINT", "collector", collector_faults.interrupt_collector),
    Kind("frozen", "collector", collector_faults.freeze_collector, most=1),
    Kind("kill -9", OWN_RUN, collector_faults.kill_whole_run, ends_workers=True, shape=OWN_SERVER),
    Kind("kill -9", "enqueue", collector_faults.kill_enqueue, most=1, shape=STRUCK_ENQUEUE),
    Kind("frozen, all of them", "every process", collector_faults.sleep_all, most=1),
    Kind("kill -9, data kept", "Redis", redis_faults.restart),
    Kind("kill -9 twice in 5 s", "Redis", redis_faults.restart_twice, most=1),
    Kind("kill -9, end of its log lost", "Redis", redis_faults.cut_log),
    Kind("FLUSHALL", "Redis", redis_faults.flush),
    Kind("replaced by an empty one", "Redis", redis_faults.replace),
    Kind("frozen", "Redis", redis_faults.freeze, most=1),
    Kind("memory full for some seconds", "Redis", redis_faults.fill, most=1, shape=FEW_AT_A_TIME),
    Kind("ended (CLIENT KILL)", "connections", redis_faults.end_connections),
    Kind("reset", "connections", redis_faults.reset_connections, shape=PROXIED),
    Kind("lost replies", "connections", redis_faults.lose_replies, shape=PROXIED),
    Kind("disk full", "journal", disk_faults.fill_disk, most=1, shape=JOURNAL_DISK),
    Kind("disk full", "ordered file", disk_faults.fill_disk, most=1, shape=OUTPUT_DISK),
    Kind("disk full", "Redis' append-only file", disk_faults.fill_disk, most=1, shape=SERVER_DISK),
    Kind("power cut, unsynced writes lost", "collector's host", disk_faults.cut_power, shape=COLLECTOR_DISK),
    Kind("set by an hour", "clock of every process", redis_faults.step_clock, shape=CLOCKED),
    Kind("dropped", "hints", redis_faults.drop_hints),
    Kind("tripled", "hints", redis_faults.double_hints),
    Kind("killed by a line (SIGABRT)", "worker", worker_faults.meet_poison, most=1, ends_workers=True, shape=ABORTING),
    Kind("killed by a line (SIGKILL)", "worker", worker_faults.meet_poison, most=1, ends_workers=True, shape=KILLING),
)

REAL_KINDS = (
    Kind("kill -9", "worker, real engine", worker_faults.kill_worker, most=1, ends_workers=True, shape=REAL),
    Kind("kill -9", "engine core, real engine", worker_faults.kill_core, most=1, ends_workers=True, shape=REAL),
)
