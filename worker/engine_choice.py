"""Which engine a worker process is to host, made from its options and not started."""

from common.errors import RefusedError
from worker.engines.base import Engine
from worker.engines.sim_engine import SimEngine
from worker.engines.sim_profiles import parse_patterns
from worker.engines.vllm_engine import VllmEngine
from worker.options import WorkerOptions


def make_engine(options: WorkerOptions) -> Engine:
    """The engine that `options` name, not started. Raises `RefusedError`."""
    if options.engine == "sim":
        sim = options.sim
        is_stepped = sim.profile in ("token", "heavy")
        return SimEngine(
            sim.profile,
            seconds=sim.seconds if is_stepped else None,
            places=sim.places,
            patterns=parse_patterns(sim.patterns),
            served_model_name=options.served_model_name or options.model,
            revision=sim.revision,
        )
    if options.model is None:
        raise RefusedError("no model", do="--model PATH or NAME")
    return VllmEngine(
        options.model,
        served_model_name=options.served_model_name,
        tensor_parallel_size=options.tensor_parallel_size,
        vllm_flags=options.vllm_flags,
    )
