"""The ordered file written anew at the end of a rerun, and put in the old one's place, which is kept beside it.

Each step can be repeated, and a crash between any two costs nothing:
1. the new file, beside the old one, synced. Crash before: it is written from its start again.
2. journal commit: from here on all places are those in the new file. It is read while it stands beside.
3. errors.jsonl, copied out of the new file, takes its place.
4. the old file gets its second name, `results.N.jsonl` of round N.
5. the new file takes its place. As long as it stands beside, 3 to 5 are done again.
"""

import os
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE
from typing import BinaryIO

import orjson

from common.errors import RefusedError, StoppedError
from common.result_line import usage_of
from producer.disk import writing_to
from producer.input_file import create_private, sync_folder
from producer.journal import Journal
from producer.journal_reader import beside

_BLOCK_BYTES = 1024 * 1024
_RESULTS = "the new ordered file"
_ERRORS = "the new errors.jsonl"
_MOVE = "move it away"


class Rewriting:
    """One job's two output files as a rerun leaves them."""

    def __init__(self, results: Path, errors: Path) -> None:
        self._results = results.resolve()
        self._errors = errors
        self._new = beside(results)
        self._new_errors = beside(errors)

    def is_outstanding(self, journal: Journal) -> bool:
        """Whether the places in `journal` are those in a new file that stands beside the old one."""
        return 0 < journal.round == journal.shown and self._new.exists()

    def write(self, journal: Journal) -> None:
        """Make the file that shows the newest round, and let `journal` say so. Blocks; memory stays flat.

        Raises `DiskError`; `RefusedError` when the old file is shorter than it was.
        """
        with writing_to(self._new, what=_RESULTS):
            with journal.writing():  # a collector that stood still must not put its file in this one's place
                new = _make_anew(self._new)
            with new, self._results.open("rb", buffering=_BLOCK_BYTES) as old:
                prompt_tokens, completion_tokens = _replace_lines(old, new, journal)
                os.fchmod(new.fileno(), S_IMODE(os.fstat(old.fileno()).st_mode))
                _flush(new)
            sync_folder(self._new.parent)
        with journal.writing():
            journal.counts.prompt_tokens -= prompt_tokens
            journal.counts.completion_tokens -= completion_tokens
            journal.show_round()

    def put_in_place(self, journal: Journal) -> None:
        """Let both new files take their places. Raises `DiskError`; `StoppedError`: the kept file's name is taken."""
        kept = kept_path(self._results, journal.round)
        with journal.writing(), writing_to(self._new, what=_RESULTS):  # no newer collector takes the job meanwhile
            with writing_to(self._new_errors, what=_ERRORS):
                self._write_errors(journal)
            self._new_errors.replace(self._errors)
            sync_folder(self._errors.parent)
            self._keep(kept)
            sync_folder(kept.parent)
            self._new.replace(self._results)
            sync_folder(self._results.parent)

    def _write_errors(self, journal: Journal) -> None:
        with _make_anew(self._new_errors) as new, self._new.open("rb", buffering=0) as results:
            for offset, length in journal.failed_places():
                new.write(os.pread(results.fileno(), length, offset))
            _flush(new)
        sync_folder(self._new_errors.parent)

    def _keep(self, kept: Path) -> None:
        if not self._results.exists() or (kept.exists() and kept.samefile(self._results)):
            return  # kept by an earlier try
        if kept.exists():
            raise StoppedError(
                "the old ordered file is to be kept here, and another is there", where=str(kept), do=_MOVE
            )
        try:
            kept.hardlink_to(self._results)
        except OSError:  # a file system without such links
            self._results.rename(kept)


def kept_path(results: Path, round_: int) -> Path:
    """Where the ordered file is kept that the rerun of `round_` replaced."""
    results = results.resolve()
    return results.with_name(f"{results.stem}.{round_}{results.suffix}")


def _make_anew(path: Path) -> BinaryIO:
    """A new file, never an older one of that name: whoever stood still may hold it open."""
    path.unlink(missing_ok=True)
    return create_private(path, buffering=_BLOCK_BYTES)


def _replace_lines(old: BinaryIO, new: BinaryIO, journal: Journal) -> tuple[int, int]:
    """Copy `old` to `new` with the journal's new lines in it; the tokens (prompt, completion) of those they replace."""
    at = prompt_tokens = completion_tokens = 0
    for line, offset, length in journal.new_lines():
        _copy(old, new, offset - at)
        before = _tokens_of(_read(old, length))
        prompt_tokens, completion_tokens = prompt_tokens + before[0], completion_tokens + before[1]
        new.write(line + b"\n")
        at = offset + length
    _copy(old, new, journal.synced_lengths()[0] - at)
    return prompt_tokens, completion_tokens


def _copy(old: BinaryIO, new: BinaryIO, size: int) -> None:
    while size > 0:
        block = _read(old, min(size, _BLOCK_BYTES))
        new.write(block)
        size -= len(block)


def _read(old: BinaryIO, size: int) -> bytes:
    block = old.read(size)
    if len(block) < size:
        raise RefusedError("the ordered file is shorter than it was", where=str(old.name), do="put it back")
    return block


def _tokens_of(line: bytes) -> tuple[int, int]:
    """What the result counted; nothing where somebody has edited it in place."""
    with suppress(ValueError, KeyError, TypeError):
        return usage_of(orjson.loads(line)["response"]["body"])
    return 0, 0


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
