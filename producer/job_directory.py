"""A job's folder on one host's local disk: everything that is known of the job and survives every process.

    JOBS/<job>/  job.json  journal.sqlite  lock  input/  output/  config/inference_config.yaml  logs/  quarantine/

Folders have mode 0700 and files 0600. A folder appears under its name only when it is complete.
A file `superseded` in it names the newer job that has taken over its output; `want` holds the newest wish left here,
`deadline` the moment by which all is to be done.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self

import yaml

from common.errors import RefusedError
from common.settings import Settings
from producer.disk import writing_to
from producer.input_file import STDIN, Kind, check_input, create_private, sync_folder, take_fingerprint
from producer.job_input import JobInput
from producer.job_lock import JobLock, check_local_disk, read_holder
from producer.job_spec import JobSpec, check_job_id, read_spec
from producer.spooler import spool

_FOLDERS = ("input", "output", "config", "logs", "quarantine")


class JobDirectory:
    """One job's folder. Made by `create`, found again by `open` or `find_same`."""

    def __init__(self, path: Path, spec: JobSpec) -> None:
        self.path = path
        self.spec = spec
        self.journal_path = path / "journal.sqlite"
        self.input = JobInput(path / "input", spec)
        self.input_path = self.input.path
        self.output_path = Path(spec.output) if spec.output else path / "output" / "results.jsonl"
        self.errors_path = path / "output" / "errors.jsonl"
        self.config_path = path / "config" / "inference_config.yaml"
        self.log_path = path / "logs" / "producer.log"
        self.worker_log_path = path / "logs" / "worker.log"
        self.audit_log_path = path / "logs" / "audit.log"
        self.events_log_path = path / "logs" / "events.log"
        self.quarantine_path = path / "quarantine"
        self.server_path = path / "redis"
        self.lock_path = path / "lock"
        self.superseded_path = path / "superseded"
        self.want_path = path / "want"
        self.deadline_path = path / "deadline"

    @classmethod
    def create(cls, jobs: Path, spec: JobSpec, *, settings: Settings, overwrite: bool = False) -> Self:
        """Make the folder of a new job; a gzip file is unpacked into it first, which blocks.

        With `overwrite` an output file that is there is removed. Raises `RefusedError`: the input cannot be read, the
        output may not be written, the id is taken, another command makes the same job just now, or `jobs` is on a
        network file system. Raises `DiskError` when the folder cannot be written: then no job was made.
        """
        jobs = jobs.absolute()
        check_local_disk(jobs)
        _check_output(jobs, spec, overwrite=overwrite)
        with writing_to(jobs, what="the folder of jobs"):
            return cls._make(jobs, spec, settings, overwrite=overwrite)

    @classmethod
    def _make(cls, jobs: Path, spec: JobSpec, settings: Settings, *, overwrite: bool) -> Self:
        _make_durable(jobs)
        before = [found.spec.job for found in cls.list_all(jobs)]
        named = spec.named(datetime.now(UTC))
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=jobs))
        try:
            named = _fill(draft, named, settings)
            with JobLock(jobs / ".lock", wait=True):
                _check_output(jobs, spec, overwrite=overwrite)
                _check_unmade(jobs, named, before)
                _take_output(jobs, named, overwrite=overwrite)
                draft.rename(jobs / named.job)
                sync_folder(jobs)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return cls(jobs / named.job, named)

    @classmethod
    def open(cls, jobs: Path, job: str) -> Self:
        """The folder of the job `job`. Raises `RefusedError` naming the folder searched."""
        path = jobs.absolute() / check_job_id(job)
        if not (path / "job.json").is_file():
            raise RefusedError(
                f"no job {job} here", where=str(jobs.absolute()), do="see producer status; set --jobs or BAKEHOUSE_JOBS"
            )
        return cls(path, read_spec(path / "job.json"))

    @classmethod
    def list_all(cls, jobs: Path) -> list[Self]:
        """Every job in `jobs` that can be read, oldest first."""
        found = []
        for path in jobs.absolute().glob("*/job.json"):
            if not path.parent.name.startswith("."):
                try:
                    found.append(cls(path.parent, read_spec(path)))
                except RefusedError:
                    continue
        return sorted(found, key=lambda directory: (directory.spec.created_at, directory.spec.job))

    @classmethod
    def find_same(cls, jobs: Path, spec: JobSpec) -> Self | None:
        """The newest job that a command with `spec` asks for again, None if there is none.

        Raises `RefusedError` when the id in `spec` belongs to a different job.
        """
        if not spec.job:
            same = [found for found in cls.list_all(jobs) if not spec.differs_from(found.spec)]
            return next((found for found in reversed(same) if not found.superseded_path.exists()), None)
        if not (jobs / spec.job / "job.json").is_file():
            return None
        found = cls.open(jobs, spec.job)
        if differing := spec.differs_from(found.spec):
            raise RefusedError(
                f"job {spec.job} is another job: its {', '.join(differing)} differ",
                where=str(found.path),
                do="give another --job-id, or the same arguments",
            )
        return found

    @staticmethod
    def owners(jobs: Path, spec: JobSpec) -> "list[JobDirectory]":
        """Jobs that write the output file of `spec`, and have not been told that another one took it over."""
        found = [] if spec.output is None else _owners(jobs, Path(spec.output))
        return [each for each in found if not each.superseded_path.exists()]

    def check_input_unchanged(self) -> None:
        """Raises `RefusedError` naming --fresh when the input is not what the job began with, or has read of it."""
        self.input.check_unchanged()

    def open_input(self) -> BinaryIO:
        """The input, open for `reader.read_lines` at its start."""
        return self.input.open()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Own the job for the time of the block.

        Raises `RefusedError`: another process owns it (its host and pid are named), the disk is a network file system,
        or a newer job has taken over the output file.
        """
        check_local_disk(self.path)
        with JobLock(self.lock_path):
            if self.superseded_path.exists():
                newer = self.superseded_path.read_text()
                raise RefusedError(f"the output has been taken over by job {newer}", where=str(self.output_path))
            yield


def _fill(draft: Path, spec: JobSpec, settings: Settings) -> JobSpec:
    for name in _FOLDERS:
        (draft / name).mkdir(mode=0o700)
    source, copy = Path(spec.input), draft / "input" / "spooled.jsonl"
    kind: Kind = "piped" if spec.input == STDIN else check_input(source)
    facts: dict[str, object] = {"spooled": kind != "plain", "streamed": kind == "piped"}
    if spec.follow and kind != "plain":
        raise RefusedError(
            "only a plain file can be followed", where=spec.input, do="leave --follow out: a pipe is read as it grows"
        )
    if kind == "packed":
        with source.open("rb") as stream:
            spool(stream, copy)
    elif kind == "piped":
        create_private(copy).close()
    if not spec.follow and kind != "piped":
        size, mtime_ns, hashes = take_fingerprint(source)
        facts |= {"input_size": size, "input_mtime_ns": mtime_ns, "input_block_hashes": hashes}
    spec = spec.model_copy(update=facts)
    effective = settings.model_dump(mode="json", exclude={"redis_url", "redis_password_file"})
    _write(draft / "config" / "inference_config.yaml", yaml.safe_dump(effective, sort_keys=False).encode())
    _write(draft / "job.json", spec.model_dump_json(indent=2).encode() + b"\n")
    for name in ("input", "config", "."):
        sync_folder(draft / name)
    return spec


def _make_durable(folder: Path) -> None:
    """Make `folder` and the parents that are missing, so that none of them is gone after a power cut."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in {folder, *missing}:  # `folder` also where it is there: who made it may have been killed
        with suppress(PermissionError):  # a folder of somebody else's, which may not be opened
            sync_folder(path.parent)


def _check_unmade(jobs: Path, spec: JobSpec, before: list[str]) -> None:
    if (jobs / spec.job).exists():
        raise RefusedError("this job id is taken", where=str(jobs / spec.job), do="choose another --job-id")
    for found in JobDirectory.list_all(jobs):
        if found.spec.job not in before and not spec.differs_from(found.spec):
            holder = read_holder(found.lock_path)
            who = f"another command ({holder})" if holder else "another command"
            raise RefusedError(f"{who} has just made this job", where=str(found.path), do="continue that one")


def _check_output(jobs: Path, spec: JobSpec, *, overwrite: bool) -> None:
    if spec.output is None:
        return
    output = Path(spec.output)
    if not output.parent.is_dir():
        raise RefusedError("the output's folder does not exist", where=str(output.parent), do="make it first")
    if spec.input != STDIN and _is_same(output, Path(spec.input)):
        raise RefusedError("the output is the input", where=spec.output, do="choose another -o")
    owners = _owners(jobs, output)
    for owner in owners:
        if holder := read_holder(owner.lock_path):
            raise RefusedError(f"job {owner.spec.job} is writing this file ({holder})", where=spec.output)
    if output.exists():
        _check_existing_output(output, owners, overwrite=overwrite)


def _take_output(jobs: Path, spec: JobSpec, *, overwrite: bool) -> None:
    """Make the output the new job's own: older owners are told first, so that none of them can ever write it again."""
    if spec.output is None:
        return
    for owner in _owners(jobs, Path(spec.output)):
        owner.superseded_path.unlink(missing_ok=True)
        _write(owner.superseded_path, spec.job.encode())
        sync_folder(owner.path)
    if overwrite:
        Path(spec.output).unlink(missing_ok=True)
        sync_folder(Path(spec.output).parent)


def _check_existing_output(output: Path, owners: list[JobDirectory], *, overwrite: bool) -> None:
    if not output.is_file():
        raise RefusedError("the output is no regular file", where=str(output), do="choose another -o")
    if output.stat().st_size and not overwrite:
        whose = f"holds results of job {owners[-1].spec.job}" if owners else "is not empty"
        raise RefusedError(f"the output {whose}", where=str(output), do="choose another -o, or give --overwrite")


def _owners(jobs: Path, output: Path) -> list[JobDirectory]:
    return [found for found in JobDirectory.list_all(jobs) if _is_same(found.output_path, output)]


def _is_same(one: Path, other: Path) -> bool:
    return one == other or (one.exists() and other.exists() and one.samefile(other))


def _write(path: Path, content: bytes) -> None:
    """Make the file `path`, synced: whole, or not at all where the disk is full."""
    file = create_private(path)
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
