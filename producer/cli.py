"""The command `producer`: verbs over one call each. Data to stdout, talk to stderr."""

import gc
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

import typer

from common.errors import BakehouseError, ExitCode
from common.talk import make_stderr_steady
from producer.cli_options import (
    CancelOptions,
    CollectOptions,
    Command,
    GetOptions,
    InputOptions,
    JobOptions,
    PauseOptions,
    PlaceOptions,
    RerunOptions,
    ResumeOptions,
    RunOptions,
    StatusOptions,
    TargetsOptions,
    WaitOptions,
)
from producer.cli_texts import (
    CANCEL,
    COLLECT,
    ENQUEUE,
    GET,
    PAUSE,
    RERUN,
    RESUME,
    RUN,
    STATUS,
    SUMMARY,
    TARGETS,
    WAIT,
    Text,
)

if TYPE_CHECKING:
    from rich.console import Console

    from producer.asking import Answer
    from producer.summary import Summary

T = TypeVar("T")
GARBAGE_OBJECTS = 50_000
"""Python looks for garbage after so many new objects, not 700: nearly all of them are modules at the start, and lines
later, and to look for cycles among them was an eighth of the start."""

app = typer.Typer(
    name="producer",
    help=SUMMARY,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def run(options: RunOptions) -> None:
    """`producer run`."""
    from producer import jobs
    from producer.progress import make_show

    console = stderr()
    report(jobs.run(options, make_show(console)), options, console)


def enqueue(options: InputOptions) -> None:
    """`producer enqueue`."""
    from producer import jobs
    from producer.progress import make_show

    typer.echo(jobs.enqueue(options, make_show(stderr())))


def collect(options: CollectOptions) -> None:
    """`producer collect`: one job, or all of them."""
    if options.every == (options.job is not None) or (options.follow and not options.every):
        raise typer.BadParameter("give a JOB, or --all (with --follow to stay)")
    console = stderr()
    if options.job is None:
        from producer.all_jobs import AllJobs

        raise typer.Exit(AllJobs(options.settings(), console, follow=options.follow).run())
    from producer import jobs
    from producer.progress import make_show

    report(jobs.collect(options, options.job, make_show(console)), options, console)


def pause(options: PauseOptions) -> None:
    """`producer pause`."""
    from producer import asking

    answer(asking.pause(options.job, settings=options.settings()), options)


def cancel(options: CancelOptions) -> None:
    """`producer cancel`."""
    from producer import asking
    from producer.progress import make_show

    answer(asking.cancel(options.job, settings=options.settings(), show=make_show(stderr())), options)


def resume(options: ResumeOptions) -> None:
    """`producer resume`."""
    from producer import asking
    from producer.progress import make_show
    from producer.summary import Summary

    console = stderr()
    found = asking.resume(options.job, settings=options.settings(), show=make_show(console))
    if isinstance(found, Summary):
        report(found, options, console)
    else:
        answer(found, options)


def rerun(options: RerunOptions) -> None:
    """`producer rerun`."""
    from producer.progress import make_show
    from producer.rerun import rerun

    console = stderr()
    report(rerun(options, make_show(console)), options, console)


def wait(options: WaitOptions) -> None:
    """`producer wait`."""
    from producer.progress import make_show
    from producer.waiting import wait

    console = stderr()
    limit_s = options.timeout_s()
    summary = wait(options.job, settings=options.settings(), show=make_show(console), timeout_s=limit_s)
    report(summary, options, console)


def status(options: StatusOptions) -> None:
    """`producer status`."""
    from producer.status import read_status
    from producer.status_table import print_status
    from producer.watch import watch

    settings = options.settings()
    if options.watch:
        if options.as_json:
            raise typer.BadParameter("--watch is for people; for a program ask again with --json")
        watch(settings, job=options.job)
        return
    found = read_status(settings, job=options.job)
    if options.as_json:
        print_json(found.to_json(gpu_hourly_cost=settings.gpu_hourly_cost))
    else:
        print_status(found, one=options.job is not None, gpu_hourly_cost=settings.gpu_hourly_cost)


def targets(options: TargetsOptions) -> None:
    """`producer targets`: once, or for Prometheus to ask."""
    from producer.discovery import as_json, read_scrape_targets
    from producer.metrics_port import serve_targets

    settings = options.settings()
    if settings.metrics_port is None:
        from producer.status import connect  # its imports bring metrics of jobs, and the port would show them at 0

        sys.stdout.buffer.write(as_json(read_scrape_targets(connect(settings))) + b"\n")
    else:
        serve_targets(settings, settings.metrics_port, say=say)


def get(options: GetOptions) -> None:
    """`producer get`."""
    from producer import jobs

    line, code = jobs.get(options)
    if line is not None:
        sys.stdout.buffer.write(line + b"\n")
    elif code == ExitCode.FOUND:
        say(f"job {options.job} has no request {options.custom_id!r}")
    else:
        say(f"job {options.job} has no result for {options.custom_id!r} yet\ncontinue: producer resume {options.job}")
    raise typer.Exit(code)


def answer(found: "Answer", options: JobOptions) -> None:
    """End a verb that asks a job's collector for something."""
    say(found.text)
    if options.as_json:
        print_json({"job": options.job, "exit_code": found.code, "said": found.text})
    raise typer.Exit(found.code)


def report(summary: "Summary", options: PlaceOptions, console: "Console") -> None:
    """End a verb with what its job came to."""
    from producer.session import continue_line
    from producer.summary import print_summary

    print_summary(summary, console)
    if options.as_json:
        print_json(summary.to_json())
    if summary.exit_code == ExitCode.NOT_FINISHED:
        say(continue_line(summary.job))
    raise typer.Exit(summary.exit_code)


def print_json(value: object) -> None:
    """One JSON object on stdout."""
    import orjson

    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def say(text: str) -> None:
    """Talk goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def stderr() -> "Console":
    """Where talk, bar and summary go."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _add(options: type[T], verb: Callable[[T], None], text: Text) -> None:
    app.command(verb.__name__, help=text.help, epilog=text.examples)(Command(options, verb))


_add(RunOptions, run, RUN)
_add(InputOptions, enqueue, ENQUEUE)
_add(CollectOptions, collect, COLLECT)
_add(PauseOptions, pause, PAUSE)
_add(ResumeOptions, resume, RESUME)
_add(CancelOptions, cancel, CANCEL)
_add(RerunOptions, rerun, RERUN)
_add(WaitOptions, wait, WAIT)
_add(StatusOptions, status, STATUS)
_add(GetOptions, get, GET)
_add(TargetsOptions, targets, TARGETS)


def main() -> None:
    """Run one verb; ends the process with its exit code, 3 for every uncaught error."""
    make_stderr_steady()
    gc.set_threshold(GARBAGE_OBJECTS)
    try:
        app()
    except BakehouseError as error:
        end(error, str(error), error.exit_code)
    except Exception as error:
        log_failure()
        end(error, f"{type(error).__name__}: {error}", ExitCode.NOT_FINISHED)


def end(error: Exception, text: str, code: ExitCode) -> NoReturn:
    """Say what went wrong and how to go on; ends the process."""
    say("\n".join([f"producer: {text}", *getattr(error, "__notes__", ())]))
    sys.exit(code)


def log_failure() -> None:
    """The details of an uncaught error: into the log where there is one, else on stderr."""
    import structlog

    from common.log import Event, get_logger

    if structlog.is_configured():
        get_logger(__name__).info(Event.COMMAND_FAILED, exc_info=True)
    else:
        traceback.print_exc()


if __name__ == "__main__":
    main()
