"""One run of chaos: one kind of fault, one seed, a few strikes in the middle of a job; what it came to, as data."""

import random
import re
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.arena import Arena
from benchmarks.chaos.judge import Findings, judge
from benchmarks.chaos.kinds import FLOW_S, Kind
from benchmarks.chaos.strike import NoEffectError, Strike, await_results
from tests.faults.small_disk import NoSmallDiskError
from tests.faults.stepped_clock import NoCompilerError

END_S = 120.0
REAL_END_S = 400.0


@dataclass(kw_only=True)
class RunRecord:
    """What one run came to, as it stands in the JSON."""

    fault: str
    process: str
    seed: int
    verb: str = ""
    rows: int = 0
    effects: list[str] = field(default_factory=list)
    void: str | None = None
    """Why it does not count."""
    lost: int = 0
    doubled: int = 0
    innocents: int = 0
    broken: list[str] = field(default_factory=list)
    redo_s: list[float] = field(default_factory=list)
    """From the fault until each lost hold's work was held by somebody again."""
    standstill_s: float = 0.0
    """The longest time without a new result, less the time that the fault itself took."""
    tokens_made: int | None = None
    """None: not known."""
    tokens_delivered: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def run_once(kind: Kind, *, seed: int, undisturbed: list[dict[str, Any]], keep: Path | None = None) -> RunRecord:
    """Set up, strike, wait for the end, judge. `keep`: where the folder of a run goes in which something is wrong."""
    record = RunRecord(fault=kind.fault, process=kind.process, seed=seed, rows=kind.shape.rows)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bh-chaos-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        try:
            _run(kind, record, folder, undisturbed)
        except NoSmallDiskError:
            record.void = "no small disk can be mounted here"
        except NoCompilerError as error:
            record.void = str(error)
        except AssertionError as error:
            record.broken.append(f"the run itself: {error}")
        if record.broken and keep is not None:
            name = f"{re.sub(r'[^A-Za-z0-9]+', '-', kind.name)}-{seed}"
            shutil.copytree(folder, Path(tempfile.mkdtemp(prefix=f"{name}-", dir=keep)), dirs_exist_ok=True)
    record.seconds = round(time.monotonic() - began_s, 1)
    return record


def _run(kind: Kind, record: RunRecord, folder: Path, undisturbed: list[dict[str, Any]]) -> None:
    draw = random.Random(f"{kind.name} {record.seed}")
    durable: list[bytes] = []
    strikes: list[Strike] = []
    with Arena(folder, kind.shape, draw=draw) as arena:
        record.verb = arena.verb
        try:
            _strike(kind, arena, strikes, durable)
        except NoEffectError as error:
            record.void = str(error)
        code = arena.finish(timeout_s=REAL_END_S if kind.shape.is_real else END_S)
        made = None if kind.shape.is_real else arena.tokens_made()
        record.effects = [strike.effect for strike in strikes]
        record.redo_s = [round(redo_s, 2) for redo_s in arena.watcher.redo_s]
        away_s = max((strike.away_s for strike in strikes), default=0.0)
        record.standstill_s = round(max(0.0, arena.watcher.standstill_s - away_s), 2)
        found = judge(arena, undisturbed=undisturbed, ends_workers=kind.ends_workers, durable=durable)
        _settle(record, found, made)
        if code != (1 if arena.poisonous else 0):
            record.broken.append(f"the job ended with {code}: {arena.collector.last_words()[-600:]}")


def _strike(kind: Kind, arena: Arena, strikes: list[Strike], durable: list[bytes]) -> None:
    """Strike once at each of some drawn points of the job. Raises `NoEffectError`."""
    first = arena.verb == "enqueue" or arena.poisonous
    points = [0.0] if first else sorted(arena.draw.uniform(0.08, 0.7) for _ in range(arena.draw.randint(1, kind.most)))
    for point in points:
        await_results(arena, point)
        durable.append(arena.durable_lines())
        strike = kind.strike(arena)
        arena.watcher.lose(strike.lost, at_s=strike.at_s)
        strikes.append(strike)


def _settle(record: RunRecord, found: Findings, made: int | None) -> None:
    record.lost, record.doubled, record.innocents = found.lost, found.doubled, found.innocents
    record.broken += found.broken
    record.tokens_made, record.tokens_delivered = made, found.tokens_delivered
    if record.standstill_s > FLOW_S:
        record.broken.append(f"no result came for {record.standstill_s} s")
