"""What the verbs about one job call: from their options to what the job came to."""

from datetime import UTC, datetime
from pathlib import Path

from common.errors import ExitCode, RefusedError, StoppedError
from common.settings import Settings
from producer.audit import note_command
from producer.cli_options import GetOptions, InputOptions, PlaceOptions
from producer.copying import await_copied, copying, do_without_rest
from producer.deadline import choose_deadline
from producer.deadline_file import leave_deadline, read_deadline
from producer.disk_need import saying_how_much
from producer.input_file import STDIN
from producer.job_directory import JobDirectory
from producer.job_lock import read_holder
from producer.job_spec import JobSpec
from producer.journal_reader import Checkpoint, JournalReader, read_checkpoint
from producer.outcome import Outcome, status_of
from producer.output import check_finished
from producer.progress import Show
from producer.session import Run, continue_line, resumable, run_job, withdraw_late
from producer.spooler import check_given_again
from producer.steering import Wish
from producer.submission import make_spec
from producer.summary import Summary
from producer.wish_file import read_wish


def run(options: InputOptions, show: Show) -> Summary:
    """Run the job that `options` ask for until it is done: a new one, or the same one from where it stopped."""
    settings = options.settings()
    directory = find_or_create(options, settings, show)
    note_command("run", directory, job=directory.spec.job, options=options)
    with copying(directory, settings=settings, show=show):
        return finish(directory, settings=settings, show=show)


def enqueue(options: InputOptions, show: Show) -> str:
    """Feed the first window of the job that `options` ask for, unless it is owned or done; returns its id."""
    settings = options.settings()
    directory = find_or_create(options, settings, show)
    job = directory.spec.job
    note_command("enqueue", directory, job=job, options=options)
    if read_summary(directory) is not None:
        show.say(f"job {job} is finished")
        return job
    with copying(directory, settings=settings, show=show) as spooler:
        try:
            outcome = run_job(directory, settings=settings, show=show, until="fed").outcome
        except RefusedError:
            if (holder := read_holder(directory.lock_path)) is None:
                raise
            show.say(f"job {job} is being worked on by {holder}")
        else:
            if outcome.state == "paused":
                error = StoppedError(f"job {job} is paused: {outcome.waiting_reason}")
                error.add_note(continue_line(job))
                raise error
            show.say(describe_enqueued(outcome, job=job, collector=read_holder(all_jobs_lock(settings.jobs))))
        if spooler is not None:
            await_copied(spooler, directory, show=show)
    return job


def describe_enqueued(outcome: Outcome, *, job: str, collector: str | None) -> str:
    """How much of a job is in Redis, how much waits, and for whom."""
    if outcome.state == "done":
        return f"job {job} is finished"
    counts = outcome.counts
    out = f"{counts.fed - counts.done:,} requests are in Redis"
    if outcome.waiting_reason:
        out += f", waiting: {outcome.waiting_reason.removeprefix('waiting for ')}"
    waiting = "the rest of the input" if counts.total is None else f"{counts.total - counts.fed:,} more"
    rest = "" if counts.total == counts.fed else f", {waiting} will be fed by a collector"
    who = f"the one of {collector} takes it up" if collector else f"none is alive: producer collect {job}"
    return f"{out}{rest}; results are written by a collector, and {who}"


def collect(options: PlaceOptions, job: str, show: Show) -> Summary:
    """Own a job on the fleet's Redis until it is done."""
    settings = options.settings()
    directory = JobDirectory.open(settings.jobs, job)
    if directory.spec.redis == "embedded":
        raise RefusedError(f"job {job} was begun with its own Redis and worker", do=f"producer resume {job}")
    note_command("collect", directory, job=job, options=options)
    directory.check_input_unchanged()
    do_without_rest(directory, show=show)
    return finish(directory, settings=settings, show=show)


def go_on(directory: JobDirectory, *, settings: Settings, show: Show, wish: Wish) -> Summary:
    """Go on with a job, whatever stopped it, on the kind of Redis it was begun on; `wish` is obeyed last of all."""
    directory.check_input_unchanged()
    do_without_rest(directory, show=show)
    return finish(directory, settings=settings, show=show, wish=wish)


def get(options: GetOptions) -> tuple[bytes | None, ExitCode]:
    """The result line of one request and how the command ends: 1 no such request, 3 no result yet."""
    directory = JobDirectory.open(options.settings().jobs, options.job)
    with JournalReader.open(directory.journal_path) as journal:
        seq = journal.find(options.custom_id)
        if seq is None:
            still_reading = journal.checkpoint().counts.total is None
            return None, ExitCode.NOT_FINISHED if still_reading else ExitCode.FOUND
        line = journal.result_line(seq, output=directory.output_path)
        return line, ExitCode.NOT_FINISHED if line is None else ExitCode.OK


def find_or_create(options: InputOptions, settings: Settings, show: Show) -> JobDirectory:
    """The job that `options` ask for: the same one if it is there, unless --fresh. Raises `RefusedError`."""
    spec = make_spec(options, settings)
    same = None if options.fresh else JobDirectory.find_same(settings.jobs, spec)
    kept = None if same is None else read_deadline(same.deadline_path)
    deadline = choose_deadline(settings.deadline, kept=kept, now=datetime.now(UTC))
    directory = _continue_or_create(options, settings, spec, same, show)
    if deadline is not None:
        if deadline != kept:
            leave_deadline(directory.deadline_path, deadline)
        show.say(f"job {directory.spec.job} is to be done by {deadline.at.astimezone():%Y-%m-%d %H:%M:%S %Z}")
    return directory


def _continue_or_create(
    options: InputOptions, settings: Settings, spec: JobSpec, same: JobDirectory | None, show: Show
) -> JobDirectory:
    if same is None:
        try:
            if not options.fresh and not options.overwrite:
                check_not_another(settings.jobs, spec)
            return JobDirectory.create(settings.jobs, spec, settings=settings, overwrite=options.overwrite)
        except RefusedError:  # perhaps since the same command, at the same moment, has made it: then it is there now
            made = None if options.fresh or spec.input == STDIN else JobDirectory.find_same(settings.jobs, spec)
            if made is None:
                raise
            same = made
    same.check_input_unchanged()
    if spec.input == STDIN and same.input.end() is not None:
        check_given_again(same.input)
    if spec.tags and spec.tags != same.spec.tags:
        kept = ", ".join(f"{key}={value}" for key, value in same.spec.tags.items()) or "none"
        show.say(f"job {same.spec.job} keeps the tags it was made with: {kept}")
    return same


def check_not_another(jobs: Path, spec: JobSpec) -> None:
    """Raises `RefusedError` when an unfinished job writes the output of `spec`, from another input or model."""
    for owner in JobDirectory.owners(jobs, spec):
        if read_summary(owner) is None:
            differing = ", ".join(spec.differs_from(owner.spec)) or "job id"
            raise RefusedError(
                f"job {owner.spec.job} writes this file and is not finished; it has another {differing}",
                where=str(owner.output_path),
                do="give the same arguments to continue it, --fresh --overwrite for a new job, or another -o",
            )


def finish(directory: JobDirectory, *, settings: Settings, show: Show, wish: Wish | None = None) -> Summary:
    """Run the job in `directory` until it is done; a job that is done already only says what it came to.

    So does a paused one whose server and worker would be started for nothing.
    """
    with resumable(directory.spec.job), saying_how_much(directory):
        done = read_summary(directory)
        checkpoint = read_checkpoint(directory.journal_path)
    if done is not None:
        with JournalReader.open(directory.journal_path) as journal:
            check_finished(directory.output_path, journal.checkpoint())
        if done.state == "cancelled" and directory.spec.redis == "given":
            withdraw_late(directory, settings=settings)
        show.say(f"job {directory.spec.job} was finished before; --fresh runs it again")
        return done
    if checkpoint is not None and is_at_rest(directory, checkpoint, wish):
        return describe_paused(directory, checkpoint)
    with show:
        return summarize(directory, run_job(directory, settings=settings, show=show, wish=wish))


def is_at_rest(directory: JobDirectory, checkpoint: Checkpoint, wish: Wish | None) -> bool:
    """Whether a job with a server of its own is paused, and nothing that is wished of it has not been heard."""
    standing = wish or read_wish(directory.want_path)
    is_unheard = standing is not None and standing.nonce not in checkpoint.steering.heard
    return checkpoint.state == "paused" and directory.spec.redis == "embedded" and not is_unheard


def describe_paused(directory: JobDirectory, checkpoint: Checkpoint) -> Summary:
    """What a paused job has come to so far."""
    return Summary(
        job=directory.spec.job,
        state=status_of(checkpoint.state, checkpoint.counts),
        exit_code=ExitCode.NOT_FINISHED,
        output=str(directory.output_path),
        counts=checkpoint.counts,
        elapsed_s=None,
        reason=checkpoint.steering.reason,
    )


def summarize(directory: JobDirectory, run: Run) -> Summary:
    """What `run` came to."""
    outcome = run.outcome
    return Summary(
        job=directory.spec.job,
        state=outcome.status,
        exit_code=outcome.exit_code,
        output=str(directory.output_path),
        counts=outcome.counts,
        elapsed_s=round(run.elapsed_s, 3),
        reason=outcome.waiting_reason if outcome.state == "paused" else None,
    )


def all_jobs_lock(jobs: Path) -> Path:
    """What `collect --all` holds on a folder of jobs."""
    return jobs.absolute() / ".collector"


def read_summary(directory: JobDirectory) -> Summary | None:
    """What a finished job came to, from its journal; None while it is not finished."""
    checkpoint = read_checkpoint(directory.journal_path)
    if checkpoint is None or checkpoint.state != "done" or checkpoint.exit_code is None:
        return None
    return Summary(
        job=directory.spec.job,
        state=status_of("done", checkpoint.counts, cancelled=checkpoint.steering.cancelled),
        exit_code=checkpoint.exit_code,
        output=str(directory.output_path),
        counts=checkpoint.counts,
        elapsed_s=None,
    )
