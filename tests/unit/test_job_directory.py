"""The job directory: what makes the same job, what is refused, and that a changed input or a second owner is seen."""

import gzip
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.errors import RefusedError
from common.settings import Settings, load
from producer.job_directory import JobDirectory
from producer.job_spec import EmbeddedWorker, JobSpec, check_job_id

CONTENT = b'{"custom_id":"a","prompt":"hi"}\n'


@dataclass
class Place:
    """A folder with an input, where jobs are made."""

    folder: Path

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def input(self) -> Path:
        return self.folder / "in.jsonl"

    @property
    def output(self) -> Path:
        return self.folder / "out.jsonl"

    def spec(self, **changes: Any) -> JobSpec:
        arguments: dict[str, Any] = {
            "input": str(self.input),
            "output": str(self.output),
            "model": "m",
            "redis": "given",
            **changes,
        }
        return JobSpec.from_settings(Settings(), **arguments)

    def create(self, *, overwrite: bool = False, **changes: Any) -> JobDirectory:
        spec = self.spec(**changes)
        return JobDirectory.create(self.jobs, spec, settings=Settings(), overwrite=overwrite)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "in.jsonl").write_bytes(CONTENT)
    return Place(tmp_path)


def test_a_new_job_is_private_and_complete(place: Place) -> None:
    created = place.create()
    found = JobDirectory.open(place.jobs, created.spec.job)
    assert found.spec == created.spec
    assert found.input_path == place.input
    assert found.output_path == place.output
    assert found.spec.created_at.startswith(f"{created.spec.job[:4]}-")
    for path in [created.path, *created.path.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert {path.name for path in created.path.iterdir()} == {
        *("job.json", "input", "output", "config", "logs", "quarantine")
    }
    assert [path.name for path in place.jobs.glob(".draft-*")] == []


def test_effective_settings_are_kept_without_the_url(place: Place) -> None:
    settings = Settings(redis_url="redis://user:secret@host/0", batch_size=7)
    created = JobDirectory.create(place.jobs, place.spec(), settings=settings)
    assert load(created.config_path).batch_size == 7
    assert "secret" not in "".join(path.read_text() for path in created.path.rglob("*") if path.is_file())


def test_the_default_output_lies_in_the_directory(place: Place) -> None:
    created = place.create(output=None)
    assert created.output_path == created.path / "output" / "results.jsonl"
    assert JobDirectory.find_same(place.jobs, place.spec(output=None)) is not None


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"redis": "embedded"}, True),
        ({"model": "other"}, False),
        ({"output": "/elsewhere.jsonl"}, False),
        ({"input": "other.jsonl"}, False),
        ({"include_request": True}, False),
        ({"follow": True}, False),
        ({"worker": EmbeddedWorker(engine="sim")}, False),
    ],
)
def test_the_same_arguments_find_the_same_job(place: Place, changes: dict[str, Any], same: bool) -> None:
    created = place.create()
    found = JobDirectory.find_same(place.jobs, place.spec(**changes))
    assert (found is not None and found.spec == created.spec) is same


def test_a_relative_path_is_the_same_job(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.create()
    monkeypatch.chdir(place.folder)
    assert JobDirectory.find_same(place.jobs, place.spec(input="x/../in.jsonl", output="./out.jsonl")) is not None


def test_knobs_of_pace_do_not_make_another_job(place: Place) -> None:
    place.create()
    arguments: dict[str, Any] = {"input": str(place.input), "output": str(place.output), "model": "m", "redis": "given"}
    slower = JobSpec.from_settings(Settings(batch_size=1, max_concurrency=3), **arguments)
    other = JobSpec.from_settings(Settings(max_retries=0), **arguments)
    assert JobDirectory.find_same(place.jobs, slower) is not None
    assert JobDirectory.find_same(place.jobs, other) is None


def test_a_given_id_finds_its_job_and_no_other(place: Place) -> None:
    created = place.create(job="night-1")
    assert created.path.name == "night-1"
    assert JobDirectory.find_same(place.jobs, place.spec(job="night-1")) is not None
    assert JobDirectory.find_same(place.jobs, place.spec(job="night-2")) is None
    with pytest.raises(RefusedError, match="model differ"):
        JobDirectory.find_same(place.jobs, place.spec(job="night-1", model="other"))
    with pytest.raises(RefusedError, match="taken"):
        place.create(job="night-1")


def test_the_newest_of_equal_jobs_counts_and_owns_the_output(place: Place) -> None:
    first, second = place.create(job="first"), place.create(job="second")
    found = JobDirectory.find_same(place.jobs, place.spec())
    assert found is not None
    assert found.spec.job == second.spec.job != first.spec.job
    with pytest.raises(RefusedError, match=second.spec.job), first.lock():
        pass
    with second.lock():
        pass


@pytest.mark.parametrize("job", ["", ".", "..", "a/b", "a.b", "../x", "-x", "a b", "ä", "x" * 65, "a{b}", "a\n"])
def test_ids_that_are_no_folder_names_are_refused(place: Place, job: str) -> None:
    with pytest.raises(RefusedError):
        check_job_id(job)
    with pytest.raises(RefusedError):
        JobDirectory.open(place.jobs, job)


def test_an_unknown_job_names_the_folder_searched(place: Place) -> None:
    with pytest.raises(RefusedError, match=str(place.jobs)):
        JobDirectory.open(place.jobs, "nobody")


def test_what_is_no_job_is_left_out_of_the_list(place: Place) -> None:
    created = place.create()
    for name, text in (("broken", "{"), ("newer", created.path.joinpath("job.json").read_text().replace("1", "2", 1))):
        (place.jobs / name).mkdir()
        (place.jobs / name / "job.json").write_text(text)
        with pytest.raises(RefusedError):
            JobDirectory.open(place.jobs, name)
    assert [found.spec.job for found in JobDirectory.list_all(place.jobs)] == [created.spec.job]


def test_outputs_that_must_not_be_touched(place: Place) -> None:
    with pytest.raises(RefusedError, match="is the input"):
        place.create(output=str(place.input))
    link = place.folder / "link.jsonl"
    link.symlink_to(place.input)
    with pytest.raises(RefusedError, match="is the input"):
        place.create(output=str(link))
    with pytest.raises(RefusedError, match="no regular file"):
        place.create(output=str(place.folder))
    with pytest.raises(RefusedError, match="does not exist"):
        place.create(output=str(place.folder / "none" / "out.jsonl"))
    place.output.write_bytes(b"kept")
    with pytest.raises(RefusedError, match="--overwrite"):
        place.create()
    assert place.output.read_bytes() == b"kept"
    assert not list(place.jobs.glob("*")) if place.jobs.exists() else True


def test_overwrite_removes_the_old_output_and_an_empty_one_is_no_obstacle(place: Place) -> None:
    place.output.write_bytes(b"")
    place.create()
    place.output.write_bytes(b"old")
    with pytest.raises(RefusedError, match="holds results of job"):
        place.create()
    place.create(overwrite=True)
    assert not place.output.exists()


def test_an_output_that_is_being_written_is_never_taken(place: Place) -> None:
    first = place.create()
    with first.lock(), pytest.raises(RefusedError, match=f"pid {os.getpid()}"):
        place.create(overwrite=True)


def test_missing_inputs_are_refused_and_leave_nothing(place: Place) -> None:
    with pytest.raises(RefusedError, match="No such file"):
        place.create(input="/nowhere/in.jsonl")
    with pytest.raises(RefusedError, match="folder"):
        place.create(input=str(place.folder))
    assert [path.name for path in place.jobs.iterdir() if path.is_dir()] == []


def test_gzip_is_unpacked_into_the_directory(place: Place) -> None:
    place.input.write_bytes(gzip.compress(CONTENT) + gzip.compress(CONTENT))
    created = place.create()
    assert created.spec.spooled
    with created.open_input() as stream:
        assert stream.read() == CONTENT * 2
    created.check_input_unchanged()
    place.input.write_bytes(gzip.compress(b"other"))
    with pytest.raises(RefusedError, match="--fresh"):
        created.check_input_unchanged()
    place.input.unlink()
    created.check_input_unchanged()


def test_a_followed_file_may_grow_before_it_is_read(place: Place) -> None:
    created = place.create(follow=True)
    assert created.input_path == place.input
    place.input.write_bytes(CONTENT * 3)
    created.check_input_unchanged()
    assert JobDirectory.find_same(place.jobs, place.spec(follow=True)) is not None
    assert JobDirectory.find_same(place.jobs, place.spec()) is None


def test_only_a_plain_file_can_be_followed(place: Place) -> None:
    place.input.write_bytes(gzip.compress(CONTENT))
    with pytest.raises(RefusedError, match="only a plain file"):
        place.create(follow=True)
    os.mkfifo(place.folder / "pipe")
    with pytest.raises(RefusedError, match="only a plain file"):
        place.create(follow=True, input=str(place.folder / "pipe"))


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT * 2, CONTENT.replace(b"hi", b"ho")])
def test_a_changed_input_is_refused(place: Place, content: bytes) -> None:
    created = place.create()
    place.input.write_bytes(CONTENT)
    created.check_input_unchanged()
    place.input.write_bytes(content)
    with pytest.raises(RefusedError, match="--fresh"):
        created.check_input_unchanged()
