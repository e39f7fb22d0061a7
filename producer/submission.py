"""From what the user typed to what a job is: flags become a `JobSpec`, or are refused with what to do instead."""

from pathlib import Path
from typing import Literal

from common.errors import RefusedError
from common.log import redact
from common.settings import Settings
from producer.cli_options import InputOptions, RunOptions
from producer.input_file import STDIN
from producer.job_spec import EmbeddedWorker, JobSpec, parse_tags

_WORKER_FLAGS = (
    "engine",
    "served_model_name",
    "workers",
    "gpus",
    "sim_profile",
    "sim_seconds",
    "sim_places",
    "sim_pattern",
)
_SIM_FLAGS = ("sim_profile", "sim_seconds", "sim_places", "sim_pattern")


def make_spec(options: InputOptions, settings: Settings) -> JobSpec:
    """The job that `options` ask for; its id is empty unless --job-id names it. Raises `RefusedError`."""
    source = options.source()
    if source is None:
        raise RefusedError("no input", do="name a JSONL file, or - for standard input")
    redis: Literal["embedded", "given"] = "given"
    worker = None
    if isinstance(options, RunOptions) and settings.redis_url is None:
        redis, worker = "embedded", make_embedded_worker(options)
    else:
        _refuse_worker_flags(options, settings)
    _check_growth(options, source)
    return JobSpec.from_settings(
        settings,
        input=source,
        output=None if options.output is None else str(options.output),
        model=worker.served_model_name if worker else options.model,
        redis=redis,
        worker=worker,
        include_request=options.include_request,
        mixed=options.mixed,
        follow=options.follow,
        tags=parse_tags(options.tag or ()),
        job=options.job_id or "",
    )


def _check_growth(options: InputOptions, source: str) -> None:
    if options.follow and source == STDIN:
        raise RefusedError("--follow is for a file", do="leave it out: standard input is read as it comes")
    if options.until_idle_s is not None and source != STDIN and not options.follow and Path(source).is_file():
        raise RefusedError("--until-idle is for an input that grows", do="add --follow, or leave it out")


def make_embedded_worker(options: RunOptions) -> EmbeddedWorker:
    """The worker that the command brings along. Raises `RefusedError`: no model, or flags of another engine."""
    engine = options.engine or "vllm"
    if engine == "vllm":
        if options.model is None:
            raise RefusedError(
                "no Redis is given, so this command runs its own worker, and that needs a model",
                do="add --model FOLDER or --model NAME, or --engine sim to try it with made-up answers,"
                " or --redis-url to use a fleet",
            )
        if given := [name for name in _SIM_FLAGS if getattr(options, name)]:
            raise RefusedError(f"{spell(given[0])} is for the simulated engine", do="add --engine sim, or leave it out")
        if any(flag.startswith("--served-model-name") for flag in options.engine_flags()):
            raise RefusedError("--served-model-name stands behind --", do="give it before, to producer run itself")
    elif options.engine_flags():
        raise RefusedError("flags behind -- go to vLLM, and the engine is simulated", do="leave them out")
    model = None if options.model is None else locate_model(options.model)
    return EmbeddedWorker(
        engine=engine,
        model=model,
        served_model_name=options.served_model_name or (model and served_name(model)),
        workers=options.workers or 1,
        tensor_parallel_size=options.tensor_parallel_size,
        gpus=options.gpus,
        sim_profile=options.sim_profile,
        sim_seconds=options.sim_seconds,
        sim_places=options.sim_places,
        sim_patterns=tuple(options.sim_pattern or ()),
        vllm_flags=options.engine_flags(),
    )


def locate_model(model: str) -> str:
    """The absolute path of a model's folder, or the hub name as it is. Raises `RefusedError` for a missing one."""
    path = Path(model).expanduser()
    if path.exists():
        return str(path.absolute())
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise RefusedError("no such model folder", where=model)
    return model


def served_name(model: str) -> str:
    """What requests call `model`: a hub name as it is, a folder by its name."""
    return Path(model).resolve().name if Path(model).is_absolute() else model


def spell(field: str) -> str:
    """The flag of an option's field."""
    return "--" + field.replace("_", "-")


def _refuse_worker_flags(options: InputOptions, settings: Settings) -> None:
    given = [name for name in _WORKER_FLAGS if getattr(options, name, None)]
    if given or options.engine_flags():
        raise RefusedError(
            f"{spell(given[0]) if given else 'what stands behind --'} is for the embedded worker,"
            " but this job goes to the workers of a fleet",
            where=redact(settings.redis_url or ""),
            do="give it to worker start instead; without a Redis URL producer run brings its own worker",
        )
