"""`python -P -m worker.app`: the process that `worker start` runs for each GPU; what it does is in `process`.

`app` exists for Celery's own tools: `celery -A worker.app inspect ping`, `celery -A worker.app flower`.
"""

import logging
import os
import sys
from typing import Any, NoReturn

from celery.signals import celeryd_init

from common.broker import make_app
from common.errors import EngineStartError, ExitCode, RefusedError
from common.log import Event, configure, get_logger
from common.settings import load
from common.talk import make_stderr_steady
from worker.engines.vllm_child import register
from worker.options import EXIT_CANNOT_START, EXIT_DIED, EXIT_DRAINED, EXIT_START_FAILED, WorkerOptions
from worker.process import LeftEarlyError, WorkerProcess

log = get_logger(__name__)


def __getattr__(name: str) -> Any:
    """`app`, made when somebody asks for it."""
    if name == "app":
        celeryd_init.connect(refuse_celerys_worker, weak=False)
        return make_app(load())
    raise AttributeError(name)


def refuse_celerys_worker(**_: object) -> NoReturn:
    """`celery -A worker.app worker` has no engine: it would wait for ever at a queue that nobody feeds."""
    print("worker: Celery's own worker command cannot serve an engine - give: worker start", file=sys.stderr)
    sys.exit(ExitCode.REFUSED)


def main() -> int:
    """Run one worker to its end; returns its exit code (`worker.options`)."""
    make_stderr_steady()
    settings = load()
    configure(level=settings.log_level, file=settings.log_file)
    process = WorkerProcess(WorkerOptions.from_environment(), settings)
    try:
        return process.run()
    except LeftEarlyError:
        code, reason = EXIT_DRAINED, "told to leave while the engine started"
    except RefusedError as error:
        code, reason = EXIT_CANNOT_START, str(error)
    except EngineStartError as error:
        code, reason = (EXIT_CANNOT_START if error.permanent else EXIT_START_FAILED), str(error)
    except Exception as error:
        code, reason = EXIT_DIED, f"{type(error).__name__}: {error}"
    tell = log.info if code == EXIT_DRAINED else log.error
    tell(Event.WORKER_STOPPED, reason=reason, exit_code=code)
    process.abandon()
    return code


if __name__ == "__mp_main__":  # vLLM's children read this module again before they do anything else
    register()

if __name__ == "__main__":
    exit_code = main()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(exit_code)  # nothing may keep a worker that has ended: not a thread, not an engine's exit handler
