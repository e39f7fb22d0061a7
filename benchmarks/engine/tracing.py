"""How full a worker keeps its engine: one traced run of the fleet alone, on the heavy-tailed rows."""

from contextlib import ExitStack
from pathlib import Path

from benchmarks.engine.fleet import Fleet
from benchmarks.engine.setup import GENERATOR, Setup
from benchmarks.engine.workloads import Workload
from benchmarks.pictures import draw_trace
from benchmarks.report import Bound, finish, print_table
from benchmarks.trace import Trace, tracing

LEAST_SAMPLES_PER_S = 9.0


def trace(setup: Setup, workload: Workload, *, rows: int, folder: Path, into: Path, picture: Path | None) -> int:
    """Requests in flight, ten looks a second; 1 when the engine was not kept full."""
    source = folder / "rows.jsonl"
    with ExitStack() as open_:
        fleet = Fleet(setup, folder, open_)
        log = fleet.start(GENERATOR, log_level="info")
        workload.write(source, rows)
        fleet.run(source, salt="warm-up", first=rows // 16)
        with tracing(log, rows=rows) as samples:
            measured = fleet.run(source, salt="traced")
    found = Trace(samples, rows=rows, concurrency=setup.concurrency)
    found.write(into)
    if picture is not None:
        draw_trace(picture, found.samples, concurrency=setup.concurrency)
    name = f"samples under {setup.concurrency} in flight with {2 * setup.concurrency} rows left"
    bounds = [
        Bound(name, found.under(), most=0),
        Bound("samples a second", len(found.samples) / measured.seconds, least=LEAST_SAMPLES_PER_S),
    ]
    print_table("trace", ["samples", "first full after s"], [[str(len(found.samples)), f"{found.full_after_s():.2f}"]])
    return finish(bounds, {"trace": measured.to_json()})
