"""The options of `producer`'s verbs, as frozen dataclasses: a verb takes one of them instead of thirty parameters."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from common.settings import Settings

T = TypeVar("T")
EMBEDDED = "The embedded worker (only where no Redis is given)"
LIMITS = "Limits"
WHICH = "Which results (default: all that are not 200)"
PLACES = "Where"


class Command(Generic[T]):
    """A verb of one parameter, a dataclass, as a command with a flag for each of its fields."""

    def __init__(self, options: type[T], verb: Callable[[T], None]) -> None:
        self._options = options
        self._verb = verb
        self.__doc__ = verb.__doc__
        self.__signature__ = inspect.signature(options)
        self.__annotations__ = get_type_hints(options, include_extras=True)

    def __call__(self, **given: Any) -> None:
        self._verb(self._options(**given))


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Where jobs, Redis, configuration and log are; every verb has these."""

    redis_url: Annotated[
        str | None,
        typer.Option(help="Redis or Valkey of the fleet (or BAKEHOUSE_REDIS_URL).", rich_help_panel=PLACES),
    ] = None
    redis_password_file: Annotated[
        Path | None, typer.Option(help="File with its password.", rich_help_panel=PLACES)
    ] = None
    jobs: Annotated[
        Path | None, typer.Option(help="Folder of job directories; default ./jobs.", rich_help_panel=PLACES)
    ] = None
    config: Annotated[Path | None, typer.Option(help="YAML file of knobs.", rich_help_panel=PLACES)] = None
    log_file: Annotated[Path | None, typer.Option(help="JSON log lines, rotated.", rich_help_panel=PLACES)] = None
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON on stdout.", rich_help_panel=PLACES)] = False

    def settings(self) -> "Settings":
        """The knobs: these flags before the environment before the YAML file. Logs go to stderr from now on."""
        from common.log import configure
        from common.password_warning import warn_of_shown
        from common.settings import Settings, load

        given = {item.name: getattr(self, item.name) for item in fields(self)}
        knobs = {name: value for name, value in given.items() if name in Settings.model_fields}
        settings = load(self.config, **knobs)
        configure(level=settings.log_level, quiet_terminal=True)
        warn_of_shown(self.redis_url)
        return settings


@dataclass(frozen=True, kw_only=True)
class OwnerOptions(PlaceOptions):
    """A verb that owns jobs until they are done: what it counts can be scraped meanwhile."""

    metrics_port: Annotated[
        int | None, typer.Option(help="Prometheus port, 0 any free one; default off.", rich_help_panel=PLACES)
    ] = None
    metrics_host: Annotated[
        str | None, typer.Option(help="Where it listens; default 127.0.0.1.", rich_help_panel=PLACES)
    ] = None


@dataclass(frozen=True, kw_only=True)
class InputOptions(PlaceOptions):
    """A file of requests and how they are to be run: `run` and `enqueue`."""

    file: Annotated[str | None, typer.Argument(metavar="FILE", help="JSONL of requests; - is standard input.")] = None
    vllm_flags: Annotated[
        list[str] | None, typer.Argument(metavar="-- VLLM FLAGS", help="For the embedded worker's engine.")
    ] = None
    input_file: Annotated[str | None, typer.Option(help="The same as FILE.")] = None
    follow: Annotated[bool, typer.Option("--follow", help="Read FILE as it grows, until it is idle.")] = False
    until_idle_s: Annotated[
        str | None,
        typer.Option(
            "--until-idle",
            metavar="DURATION",
            help="- or a followed FILE ends when no line has come for so long: 600, 30s, 10m; default never.",
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", "--output-file", help="The ordered results; default in the job directory."),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(help="A served model; for the embedded worker the folder or the hub name of one."),
    ] = None
    tag: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Kept with the job and shown by status; repeatable.")
    ] = None
    job_id: Annotated[str | None, typer.Option(help="Name of the job; makes the command idempotent.")] = None
    fresh: Annotated[bool, typer.Option("--fresh", help="A new job, though the same one is there.")] = False
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")] = False
    include_request: Annotated[bool, typer.Option("--include-request", help="Carry the request in its result.")] = False
    mixed: Annotated[
        bool, typer.Option("--allow-mixed-revisions", help="Builds of a model may share the job; `meta` says which.")
    ] = False
    priority: Annotated[Literal["high", "normal", "low"] | None, typer.Option(help="Among jobs; default normal.")] = (
        None
    )
    deadline: Annotated[
        str | None, typer.Option(metavar="WHEN", help="All by then: 07:00 (local, the next one), or ISO 8601.")
    ] = None
    fail_above: Annotated[
        float | None, typer.Option(help="Exit 0 while failed/total is at most this share; default 0.")
    ] = None
    pause_above: Annotated[
        float | None,
        typer.Option(help="Pause the job when 5xx pass this share of 50 results or more; default 0.2, 1 never."),
    ] = None
    max_concurrency: Annotated[
        int | None, typer.Option(help="Most requests out at a time; default no cap.", rich_help_panel=LIMITS)
    ] = None
    batch_size: Annotated[
        int | None, typer.Option(help="Requests a micro-batch; default 32.", rich_help_panel=LIMITS)
    ] = None
    batch_timeout_s: Annotated[
        float | None,
        typer.Option(
            "--linger",
            "--batch-timeout",
            help="A micro-batch goes when full, or its oldest line so old, in s; default 5.",
            rich_help_panel=LIMITS,
        ),
    ] = None
    order: Annotated[
        Literal["input", "prefix", "length"] | None,
        typer.Option(
            help="In which requests run: by shared prefix, longest first; default input.", rich_help_panel=LIMITS
        ),
    ] = None
    request_timeout_s: Annotated[
        float | None,
        typer.Option("--request-timeout", help="One attempt of a request, in s; default 1800.", rich_help_panel=LIMITS),
    ] = None
    max_retries: Annotated[
        int | None, typer.Option(help="Retries of a transient error; default 3.", rich_help_panel=LIMITS)
    ] = None

    def source(self) -> str | None:
        """FILE or --input-file; raises `BadParameter` when both or a stray argument are given."""
        file, flags = self.file, self.vllm_flags or ()
        if file is not None and file.startswith("-") and file != "-":
            file = None
        elif flags and not flags[0].startswith("-"):
            raise typer.BadParameter(f"unexpected argument {flags[0]!r}; vLLM's flags stand behind --")
        if file is not None and self.input_file is not None:
            raise typer.BadParameter("FILE and --input-file are the same; give one")
        return file or self.input_file

    def engine_flags(self) -> tuple[str, ...]:
        """What stands behind `--`; it can be mistaken for FILE where --input-file is used."""
        leading = [self.file] if self.file and self.file.startswith("-") and self.file != "-" else []
        return (*leading, *(self.vllm_flags or ()))


@dataclass(frozen=True, kw_only=True)
class RunOptions(InputOptions, OwnerOptions):
    """`run`: also what its embedded worker shall be."""

    engine: Annotated[
        Literal["vllm", "sim"] | None,
        typer.Option(help="Default vllm; sim makes answers up.", rich_help_panel=EMBEDDED),
    ] = None
    served_model_name: Annotated[
        str | None, typer.Option(help="The model's name in requests; default its own.", rich_help_panel=EMBEDDED)
    ] = None
    gpus: Annotated[
        str | None, typer.Option(help="0,1 (indices or UUIDs), all, or none; default all.", rich_help_panel=EMBEDDED)
    ] = None
    tensor_parallel_size: Annotated[int, typer.Option(min=1, help="GPUs an engine.", rich_help_panel=EMBEDDED)] = 1
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers where they have no GPU; default 1.", rich_help_panel=EMBEDDED)
    ] = None
    sim_profile: Annotated[
        Literal["token", "heavy", "zero", "bakery"] | None,
        typer.Option(help="Timing of the simulated engine.", rich_help_panel=EMBEDDED),
    ] = None
    sim_seconds: Annotated[float | None, typer.Option(help="Seconds a step.", rich_help_panel=EMBEDDED)] = None
    sim_places: Annotated[int | None, typer.Option(help="Requests at once.", rich_help_panel=EMBEDDED)] = None
    sim_pattern: Annotated[
        list[str] | None,
        typer.Option(metavar="ACTION=TEXT", help="A fault for requests with TEXT.", rich_help_panel=EMBEDDED),
    ] = None


@dataclass(frozen=True, kw_only=True)
class JobOptions(PlaceOptions):
    """A verb about one job."""

    job: Annotated[str, typer.Argument(metavar="JOB", help="Job id.")]


@dataclass(frozen=True, kw_only=True)
class PauseOptions(JobOptions):
    """`pause`."""


@dataclass(frozen=True, kw_only=True)
class CancelOptions(JobOptions, OwnerOptions):
    """`cancel`."""


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(JobOptions, OwnerOptions):
    """`resume`."""


@dataclass(frozen=True, kw_only=True)
class RerunOptions(JobOptions, OwnerOptions):
    """`rerun`: which results of a finished job are asked for again."""

    code: Annotated[
        list[str] | None, typer.Option(help="Those with this error code; several may be given.", rich_help_panel=WHICH)
    ] = None
    status: Annotated[
        list[str] | None,
        typer.Option(help="Those with this status, 503, or of this class, 5xx; several.", rich_help_panel=WHICH),
    ] = None
    ids: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Those whose custom_id is a line of FILE.", rich_help_panel=WHICH),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CollectOptions(OwnerOptions):
    """`collect`: one job, or all of the folder."""

    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Job id.")] = None
    every: Annotated[bool, typer.Option("--all", help="Every unfinished job in the folder of jobs.")] = False
    follow: Annotated[bool, typer.Option("--follow", help="With --all: stay, and take up new jobs.")] = False


@dataclass(frozen=True, kw_only=True)
class TargetsOptions(OwnerOptions):
    """`targets`."""


@dataclass(frozen=True, kw_only=True)
class WaitOptions(JobOptions):
    """`wait`."""

    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Exit 3 after so long: 600, 30s, 10m, 2h; default never."),
    ] = None

    def timeout_s(self) -> float | None:
        """--timeout in seconds. Raises `BadParameter`."""
        from common.durations import parse_duration

        try:
            return parse_duration(self.timeout) if self.timeout else None
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class StatusOptions(PlaceOptions):
    """`status`: one job, or all that are known."""

    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Job id.")] = None
    watch: Annotated[bool, typer.Option("--watch", help="Show it until it is over, every 2 s; Ctrl-C ends.")] = False
    gpu_hourly_cost: Annotated[
        float | None, typer.Option(metavar="COST", help="Of one GPU; each job's cost is shown by it.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class GetOptions(JobOptions):
    """`get`: one request of one job."""

    custom_id: Annotated[str, typer.Argument(metavar="CUSTOM_ID", help="The request's custom_id.")]
