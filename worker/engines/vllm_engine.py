"""The real engine: vLLM's own OpenAI application, built in this process and called without a port.

A line's body goes in as vLLM's HTTP server would get it, so statuses, bodies and error codes are exactly
those of `vllm serve`. The only module that imports vllm, and only once an engine starts.
"""

import asyncio
import contextlib
import gc
import importlib
import multiprocessing
import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from prometheus_client import REGISTRY

from worker.engines.asgi_call import call
from worker.engines.base import Answer, EngineFacts
from worker.engines.cpu_dtype import read_cpuinfo, widen
from worker.engines.hub_reach import revision_of, settle_offline
from worker.engines.model_check import check_model, served_name
from worker.engines.model_digest import model_digest, model_revision
from worker.engines.start_failure import death_error, refuse_flags, start_error
from worker.engines.vllm_answers import error_answer, refuse_failed_grammars, refuse_stream, settle, short_paths
from worker.engines.vllm_arguments import (
    adapters_of,
    chat_template_of,
    forbid_fetching,
    pin_grammar_backend,
    set_cpu_defaults,
)
from worker.engines.vllm_child import FAILURE_FILE_VARIABLE, WORKER_PID_VARIABLE

_ARGUMENT_MODULES = (
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
"""Where the flags live: in 0.31 and 0.32, from 0.33, up to 0.28."""
_UNREAD_WEIGHTS_FLAGS = ("--load-format", "--load_format")
_OTHER_SIZE_FLAGS = ("--quantization", "-q", *_UNREAD_WEIGHTS_FLAGS)
"""Flags with which the files in the model folder say nothing about what is loaded."""
_COMPILE_FLAGS = ("--compilation", "-cc", "--optimization", "-O", "--no-enforce-eager", "--no_enforce_eager")
_GRAMMAR_FLAGS = ("--structured-outputs-config.backend", "--structured_outputs_config.backend")
_PREEMPTIONS = "vllm:num_preemptions_total"
_STOP_S = 5.0
"""How long the engine core may take to end by itself before it is killed."""


class VllmEngine:
    """One vLLM engine and its OpenAI application. Implements `Engine`."""

    def __init__(
        self,
        model: str,
        *,
        served_model_name: str | None = None,
        tensor_parallel_size: int = 1,
        vllm_flags: Sequence[str] = (),
    ) -> None:
        self._model = model
        self._served_model_name = served_model_name
        self._tensor_parallel_size = tensor_parallel_size
        self._flags = list(vllm_flags)
        self._engine: Any = None
        self._application: Any = None
        self._paths: dict[str, str] = {}
        self._empty_folder = tempfile.TemporaryDirectory(prefix="bakehouse-no-media-", ignore_cleanup_errors=True)
        self._failure_file = Path(self._empty_folder.name).with_suffix(".failure")
        self._steps = 0

    async def start(self) -> EngineFacts:
        """Load the model and be ready; blocks the loop while vLLM is imported and its core starts.

        Call it in a thread that lives as long as the worker: vLLM's children die with the thread that made
        them. Raises `EngineStartError`.
        """
        revision = revision_of(self._flags)
        settle_offline(self._model, revision=revision, environment=os.environ)
        weights = not self._has_flag(_UNREAD_WEIGHTS_FLAGS)
        check_model(self._model, environment=os.environ, revision=revision, weights=weights)
        os.environ |= {WORKER_PID_VARIABLE: str(os.getpid()), FAILURE_FILE_VARIABLE: str(self._failure_file)}
        try:
            return await self._start()
        except (Exception, SystemExit) as error:
            failure = start_error(error, model=self._model, failure_file=self._failure_file)
            await self.stop()
            raise failure from error
        finally:
            self._failure_file.unlink(missing_ok=True)

    async def _start(self) -> EngineFacts:
        marks = [time.monotonic()]
        version = importlib.import_module("vllm").__version__
        arguments = self._arguments()
        marks.append(time.monotonic())
        self._engine = _make_engine(arguments)
        await self._engine.get_supported_tasks()
        self._count_steps()
        refuse_failed_grammars(self._engine, _refusal)
        marks.append(time.monotonic())
        self._application = await _make_application(self._engine, arguments)
        self._paths = short_paths(self._application.routes)
        gc.collect()
        gc.freeze()  # the start-up heap stays: full collections over it would pause every request
        marks.append(time.monotonic())
        phases = ("import", "engine", "application")
        spans = {name: marks[i + 1] - marks[i] for i, name in enumerate(phases)}
        return self._facts(arguments, version=version, start_phases_s=spans)

    async def post(self, url: str, body: bytes) -> Answer:
        """Answer one call. Cancelling stops the request inside the engine before the cancellation returns.

        Raises `EngineDeadError` when the engine is gone.
        """
        await self.check_health()
        if refused := refuse_stream(body):
            return refused
        try:
            answer = await call(self._application, self._paths.get(url, url), body)
        except Exception as error:
            await self.check_health()
            return error_answer(500, "InternalServerError", f"the engine raised {type(error).__name__}")
        if answer.status >= 500:
            await self.check_health()
        return settle(answer)

    def unfinished(self) -> int:
        """Requests inside the engine now; each choice of an `n` counts."""
        return 0 if self._engine is None else int(self._engine.output_processor.get_num_unfinished_requests())

    def steps(self) -> int:
        """Output messages from the engine core so far: one a step while requests run."""
        return self._steps

    def preemptions(self) -> int:
        """As vLLM's own metric says; 0 with `--disable-log-stats`."""
        families = REGISTRY.restricted_registry([_PREEMPTIONS]).collect()
        return int(sum(sample.value for family in families for sample in family.samples if sample.name == _PREEMPTIONS))

    async def check_health(self) -> None:
        """Raises `EngineDeadError` when the engine core is gone or was never there."""
        if self._engine is None or self._engine.errored:
            raise death_error(self._failure_file)

    async def stop(self) -> None:
        """End the engine core and its children; what is in flight gets `EngineDeadError`."""
        engine, self._engine, self._application = self._engine, None, None
        children = _engine_processes()
        if engine is not None:
            if engine.output_handler is not None and not engine.output_processor.has_unfinished_requests():
                engine.output_handler.cancel()  # with nobody to tell, it would log the planned end as a crash
            await asyncio.to_thread(engine.shutdown)
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, _STOP_S)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await asyncio.to_thread(psutil.wait_procs, alive, _STOP_S)
        self._failure_file.unlink(missing_ok=True)
        self._empty_folder.cleanup()

    def _arguments(self) -> Namespace:
        """vLLM's own flags, parsed by vLLM; what the worker decides is set on top."""
        from vllm.platforms import current_platform
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        parser = _import_first(_ARGUMENT_MODULES, "make_arg_parser")(FlexibleArgumentParser())
        parser.error = refuse_flags
        arguments: Namespace = parser.parse_args(self._flags)
        _import_first(_ARGUMENT_MODULES, "validate_parsed_serve_args")(arguments)
        arguments.model = self._model
        arguments.api_key = None
        if self._tensor_parallel_size > 1:
            arguments.tensor_parallel_size = self._tensor_parallel_size
        if self._served_model_name is not None or not arguments.served_model_name:
            arguments.served_model_name = [served_name(self._model, self._served_model_name)]
        forbid_fetching(arguments, empty_folder=self._empty_folder.name)
        if not self._has_flag(_GRAMMAR_FLAGS):
            pin_grammar_backend(arguments)
        if current_platform.is_cpu():
            memory_bytes = psutil.virtual_memory().total
            set_cpu_defaults(arguments, memory_bytes=memory_bytes)
            widen(arguments, cpuinfo=read_cpuinfo())
            if not self._has_flag(_OTHER_SIZE_FLAGS):
                left_bytes = max(0, memory_bytes - (arguments.kv_cache_memory_bytes or 0))
                check_model(self._model, environment=os.environ, memory_bytes=left_bytes)
            # compiling needs a C++ compiler and a minute at each first start
            arguments.enforce_eager = arguments.enforce_eager or not self._has_flag(_COMPILE_FLAGS)
        return arguments

    def _has_flag(self, names: tuple[str, ...]) -> bool:
        return any(flag.startswith(names) for flag in self._flags)

    def _count_steps(self) -> None:
        """Count what comes out of the engine core, at the one place where all of it passes."""
        core = self._engine.engine_core
        get_output = core.get_output_async

        async def counted() -> Any:
            outputs = await get_output()
            self._steps += 1
            return outputs

        core.get_output_async = counted

    def _facts(self, arguments: Namespace, *, version: str, start_phases_s: dict[str, float]) -> EngineFacts:
        model, cache = self._engine.model_config, self._engine.vllm_config.cache_config
        revision = model_revision(self._model, arguments.revision, environment=os.environ)
        adapters = adapters_of(arguments, environment=os.environ)
        blocks = int(cache.num_gpu_blocks or 0)
        return EngineFacts(
            name=f"vllm {version}",
            served_models=(*arguments.served_model_name, *adapters),
            digest=model_digest(
                revision or self._model,
                dtype=str(model.dtype),
                quantisation=model.quantization,
                chat_template=chat_template_of(arguments),
                adapters=adapters,
            ),
            revision=revision,
            concurrency=max(1, min(self._engine.vllm_config.scheduler_config.max_num_seqs, blocks or 1 << 30)),
            dtype=str(model.dtype).removeprefix("torch."),
            max_model_len_tokens=model.max_model_len,
            kv_cache_tokens=blocks * cache.block_size if blocks else None,
            start_phases_s=start_phases_s,
        )


def _make_engine(arguments: Namespace) -> Any:
    """vLLM's asynchronous engine; starts the engine core as a child process and blocks until it is up."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(
        AsyncEngineArgs.from_cli_args(arguments), usage_context=UsageContext.OPENAI_API_SERVER
    )


async def _make_application(engine: Any, arguments: Namespace) -> Any:
    """vLLM's OpenAI application over `engine`, with the start-up work its HTTP server would do."""
    from vllm.entrypoints.openai.api_server import build_app, init_app_state

    tasks = await engine.get_supported_tasks()
    application = build_app(arguments, tasks, engine.model_config)
    await init_app_state(engine, application.state, arguments, tasks)
    # the handler of a dead engine tells the HTTP server to end; there is none
    application.state.server = SimpleNamespace(should_exit=False)
    return application


def _import_first(modules: Sequence[str], name: str) -> Any:
    """`name` from the first of `modules` that exists in this version of vLLM."""
    for module in modules:
        with contextlib.suppress(ModuleNotFoundError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"this version of vLLM has {name} in none of {', '.join(modules)}")


def _engine_processes() -> list[psutil.Process]:
    """The engine core and its own children."""
    found: list[psutil.Process] = []
    for child in multiprocessing.active_children():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(child.pid)
            found += [process, *process.children(recursive=True)]
    return found


def _refusal(message: str) -> Exception:
    """The error that vLLM's application answers with a 400."""
    from vllm.exceptions import VLLMValidationError

    error: Exception = VLLMValidationError(message)
    return error
