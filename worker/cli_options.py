"""The flags of `worker`'s verbs, a frozen dataclass each, and what follows from them: knobs, options of a worker."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from common.errors import RefusedError
from common.secret_file import read_secret
from common.settings import Settings, load
from worker.engines.sim_profiles import SimProfile, parse_patterns
from worker.flower_page import LOOPBACK, PORT
from worker.options import SimOptions, WorkerOptions

GPUS = "GPUs"
REDIS = "redis://, rediss://, unix:// or sentinel://; default BAKEHOUSE_REDIS_URL, else this machine's."
PASSWORD = "File with its password; default BAKEHOUSE_REDIS_PASSWORD_FILE."
SIM = "The simulated engine"
RUNNING = "Running"


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """`worker start`: what the user gave; None where a default is to be found elsewhere."""

    vllm_flags: Annotated[
        list[str] | None, typer.Argument(metavar="[-- VLLM FLAGS]", help="Handed to vLLM as they are.")
    ] = None
    model: Annotated[str | None, typer.Option(help="Folder or hub NAME of the model; vLLM needs one.")] = None
    served_model_name: Annotated[
        str | None, typer.Option(help="What requests call it; default the NAME, else the folder's name.")
    ] = None
    engine: Annotated[Literal["vllm", "sim"], typer.Option(help="The real engine, or a simulated one.")] = "vllm"
    redis_url: Annotated[str | None, typer.Option(help=REDIS)] = None
    redis_password_file: Annotated[Path | None, typer.Option(help=PASSWORD)] = None
    config: Annotated[Path | None, typer.Option(help="YAML file of knobs; environment and flags win.")] = None

    gpus: Annotated[
        str | None,
        typer.Option(
            help="0,1 (indices or UUIDs), all, none, or free: what an engine needs of those that no other `free` worker"
            " of this host has; default all there are.",
            rich_help_panel=GPUS,
        ),
    ] = None
    tensor_parallel_size: Annotated[int, typer.Option(min=1, help="GPUs an engine.", rich_help_panel=GPUS)] = 1
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers where they have no GPU; default 1.", rich_help_panel=GPUS)
    ] = None

    drain_timeout_s: Annotated[
        float | None,
        typer.Option(
            "--drain-timeout", help="What runs may finish so long, in s; default 25.", rich_help_panel=RUNNING
        ),
    ] = None
    exit_when_idle_s: Annotated[
        str | None,
        typer.Option(
            "--exit-when-idle",
            metavar="DURATION",
            help="Drain and exit 0 after so long with nothing to do: 600, 30s, 10m, 2h; default never.",
            rich_help_panel=RUNNING,
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Prometheus port, one higher each further worker; 0 any free one; default off.",
            rich_help_panel=RUNNING,
        ),
    ] = None
    metrics_host: Annotated[
        str | None, typer.Option(help="Where it listens; default 127.0.0.1.", rich_help_panel=RUNNING)
    ] = None
    log_file: Annotated[
        Path | None,
        typer.Option(help="JSON log lines, rotated; a worker's own beside it: NAME-<gpu>.", rich_help_panel=RUNNING),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(help="Least level logged; default info.", rich_help_panel=RUNNING),
    ] = None

    sim_profile: Annotated[SimProfile, typer.Option(help="How it spends time.", rich_help_panel=SIM)] = SimProfile.TOKEN
    sim_seconds: Annotated[
        float | None, typer.Option(min=0, help="Seconds a step; default the profile's.", rich_help_panel=SIM)
    ] = None
    sim_places: Annotated[
        int | None, typer.Option(min=1, help="Requests at once; default the profile's.", rich_help_panel=SIM)
    ] = None
    sim_pattern: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACTION=TEXT",
            help="A fault for requests with TEXT: abort, kill, hang, fail-once, fail, inf-logprobs.",
            rich_help_panel=SIM,
        ),
    ] = None
    sim_revision: Annotated[
        str | None, typer.Option(help="Which build of a model it says that it is.", rich_help_panel=SIM)
    ] = None

    def settings(self) -> Settings:
        """The knobs: these flags before the environment before the YAML file. Raises `RefusedError`."""
        knobs = (knob for knob in Settings.model_fields if hasattr(self, knob))
        return load(self.config, **{knob: getattr(self, knob) for knob in knobs})

    def worker_options(self) -> WorkerOptions:
        """What each worker is to be. Raises `RefusedError` where the flags make no sense together."""
        flags = tuple(self.vllm_flags or ())
        if flags and not flags[0].startswith("-"):
            raise RefusedError(f"unexpected argument {flags[0]!r}", do="vLLM's flags stand behind --")
        if self.engine == "sim" and flags:
            raise RefusedError("vLLM flags with the simulated engine", do="leave them out, or --engine vllm")
        if self.engine == "vllm" and self.model is None:
            raise RefusedError("no model", do="give --model FOLDER or NAME, or --engine sim")
        if self.engine == "vllm" and importlib.util.find_spec("vllm") is None:
            raise RefusedError("vLLM is not installed", do="pip install 'bakehouse[gpu]' or 'bakehouse[cpu]'")
        return WorkerOptions(
            engine=self.engine,
            model=self.model,
            served_model_name=self.served_model_name,
            tensor_parallel_size=self.tensor_parallel_size,
            vllm_flags=flags,
            sim=self._sim_options(),
        )

    def cpu_workers(self, *, groups: int) -> int:
        """How many workers run without a GPU: 0 where there are `groups`. Raises `RefusedError`."""
        if groups and self.workers is not None:
            raise RefusedError("--workers counts workers without a GPU", do="name the GPUs with --gpus, or --gpus none")
        return 0 if groups else self.workers or 1

    def _sim_options(self) -> SimOptions:
        seconds, places, patterns = self.sim_seconds, self.sim_places, tuple(self.sim_pattern or ())
        parse_patterns(patterns)
        return SimOptions(
            profile=self.sim_profile.value,
            seconds=self.sim_profile.default_seconds if seconds is None else seconds,
            places=self.sim_profile.default_places if places is None else places,
            patterns=patterns,
            revision=self.sim_revision,
        )


@dataclass(frozen=True, kw_only=True)
class FlowerOptions:
    """`worker flower`."""

    flower_flags: Annotated[
        list[str] | None, typer.Argument(metavar="[-- FLOWER FLAGS]", help="Handed to Flower as they are.")
    ] = None
    redis_url: Annotated[str | None, typer.Option(help=REDIS)] = None
    redis_password_file: Annotated[Path | None, typer.Option(help=PASSWORD)] = None
    config: Annotated[Path | None, typer.Option(help="YAML file of knobs; environment and flags win.")] = None
    port: Annotated[int, typer.Option(help="Where it listens.")] = PORT
    host: Annotated[str, typer.Option(help="Any but loopback needs a login.")] = LOOPBACK
    basic_auth: Annotated[
        str | None, typer.Option(metavar="USER:PASSWORD", help="The login it asks for.", envvar="FLOWER_BASIC_AUTH")
    ] = None
    basic_auth_file: Annotated[
        Path | None, typer.Option(help="File with that login.", envvar="FLOWER_BASIC_AUTH_FILE")
    ] = None

    def login(self) -> str | None:
        """USER:PASSWORD, given or from its file. Raises `RefusedError`."""
        if self.basic_auth_file is None or self.basic_auth is not None:
            return self.basic_auth
        return read_secret(self.basic_auth_file, what="login of Flower")
