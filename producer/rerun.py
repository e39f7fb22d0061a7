"""The beginning of a rerun: which results of a finished job are asked for again, and the commit that opens it for them.

From then on it is a job like any other, in a higher round: a collector feeds, receives and writes, whatever stops it.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from common.errors import RefusedError
from producer.audit import note_command
from producer.cli_options import RerunOptions
from producer.disk_need import saying_how_much
from producer.job_directory import JobDirectory
from producer.jobs import finish, read_summary
from producer.journal import Journal
from producer.journal_reader import read_checkpoint
from producer.output import check_finished
from producer.progress import Show
from producer.rewriting import kept_path
from producer.selection import Selection
from producer.session import resumable
from producer.summary import Summary


class Begun(NamedTuple):
    """What a rerun does."""

    round: int
    requests: int
    left_out: dict[str, int]
    """Code -> selected lines that never became a request."""

    def describe(self) -> Iterator[str]:
        """In words, a line each."""
        if self.requests:
            yield f"round {self.round}: {self.requests:,} requests run again"
        else:
            yield "nothing to run again: no result is selected that another run could better"
        if self.left_out:
            kinds = ", ".join(f"{code} {number:,}" for code, number in sorted(self.left_out.items()))
            yield f"left out: {sum(self.left_out.values()):,} lines that never became a request ({kinds})"


def rerun(options: RerunOptions, show: Show) -> Summary:
    """Run the selected requests of a finished job once more, until it is done again."""
    settings = options.settings()
    directory = JobDirectory.open(settings.jobs, options.job)
    note_command("rerun", directory, job=options.job, options=options)
    directory.check_input_unchanged()
    selection = Selection.make(options.code or (), options.status or ())
    with resumable(options.job), saying_how_much(directory):
        begun = begin_rerun(directory, selection, ids=options.ids)
    for line in begun.describe():
        show.say(line)
    nothing = None if begun.requests else read_summary(directory)
    return nothing or finish(directory, settings=settings, show=show)


def begin_rerun(directory: JobDirectory, selection: Selection, *, ids: Path | None) -> Begun:
    """Open the finished job in `directory` again for what is selected, unless that is nothing.

    The same selection again goes on with the rerun that it began. Raises `RefusedError`: the job is not finished or
    somebody has it, an id is unknown, or the old ordered file could not be kept.
    """
    if read_checkpoint(directory.journal_path) is None:
        raise _not_finished(directory)
    with directory.lock(), Journal.open(directory.journal_path) as journal:
        if ids is not None:
            selection = replace(selection, ids=_find_ids(journal, ids))
        if journal.course.state != "done":
            if journal.selection() != selection.to_json():
                raise _not_finished(directory)
            return Begun(journal.round, journal.counts.left, {})
        check_finished(directory.output_path, journal.checkpoint())
        chosen = journal.choose(selection)
        if chosen.requests:
            _check_place(directory, round_=journal.round + 1)
            with journal.writing():
                journal.begin_round(selection)
        return Begun(journal.round, *chosen)


def _find_ids(journal: Journal, ids: Path) -> str:
    wanted = journal.want_ids(_read_ids(ids))
    if wanted.unknown:
        more = wanted.all_unknown - len(wanted.unknown)
        names = ", ".join(map(repr, wanted.unknown)) + (f" and {more:,} more" if more else "")
        raise RefusedError(f"no request of this job has the custom_id {names}", where=str(ids))
    return wanted.digest


def _read_ids(path: Path) -> Iterator[str]:
    """One custom_id a line, without the white space around it."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from filter(None, map(str.strip, file))
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(f"the file of ids cannot be read: {error}", where=str(path)) from error


def _check_place(directory: JobDirectory, *, round_: int) -> None:
    kept = kept_path(directory.output_path, round_)
    if kept.exists():
        raise RefusedError(
            "the old ordered file would be kept here, and another is there", where=str(kept), do="move it away"
        )
    if not os.access(kept.parent, os.W_OK):
        raise RefusedError("no file can be made beside the ordered file", where=str(kept.parent))


def _not_finished(directory: JobDirectory) -> RefusedError:
    job = directory.spec.job
    return RefusedError(f"job {job} is not finished", where=str(directory.path), do=f"producer resume {job}")
