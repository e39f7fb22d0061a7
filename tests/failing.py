"""Jobs of which some results fail, made up by the worker of `tests.collecting`, and what reruns must leave of them."""

import json
from collections.abc import Callable, Collection
from pathlib import Path

import orjson

from common.claim_types import Publication
from common.errors import ErrorKind
from common.wire import MicroBatch, Request, Result, pack_results
from producer.journal_reader import JournalReader
from producer.rerun import Begun, begin_rerun
from producer.selection import Selection
from tests.collecting import Bench, FakeEngineWorker

ROWS = 40

Publish = Callable[[FakeEngineWorker, str, MicroBatch, str, int], None]


def failing(ids: Collection[str], *, kind: ErrorKind = ErrorKind.OVERLOADED) -> Publish:
    """Publish all of a micro-batch, with a result of `kind` for each of `ids`; each says its round and its tokens."""

    def publish(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        missing = [i for i in range(len(batch.requests)) if not got >> i & 1]
        for i in missing:
            result = result_of(job, batch, batch.requests[i], kind if batch.requests[i].custom_id in ids else None)
            worker.claims.publish(job, [Publication(batch.mb, token, 1 << i, pack_results([result]))])

    return publish


def result_of(job: str, batch: MicroBatch, request: Request, kind: ErrorKind | None) -> Result:
    """A result of `request`, good where there is no `kind`; lines of a later round are longer."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5 + request.round}
    body = {"text": f"round {request.round}" * (1 + request.round), "usage": usage}
    status = 200 if kind is None else kind.status
    line = {
        "id": f"{job}-{request.seq}",
        "custom_id": request.custom_id,
        "line": request.line,
        "response": {"status_code": status, "request_id": None, "body": body if kind is None else {"error": {}}},
        "error": None if kind is None else {"code": kind.value, "message": ""},
        "meta": {"model": batch.model},
    }
    tokens = (0, 0) if kind else (10, 5 + request.round)
    return Result(request.seq, request.round, status, kind.value if kind else "", 1, *tokens, orjson.dumps(line))


def ids(*numbers: int) -> set[str]:
    """The custom_ids of these lines."""
    return {f"r{number}" for number in numbers}


class Failing(Bench):
    """A job of which some results fail."""

    def go(self, bad: Collection[str], *, kind: ErrorKind = ErrorKind.OVERLOADED) -> int:
        """Run a collector to the job's end beside a worker that fails `bad`; the exit code."""
        with FakeEngineWorker(self.server, publish=failing(bad, kind=kind)) as worker:
            outcome = self.run()
        assert not worker.errors
        return outcome.exit_code

    def begin(self, *, codes: Collection[str] = (), statuses: Collection[str] = (), file: Path | None = None) -> Begun:
        """Begin a rerun."""
        return begin_rerun(self.directory, Selection.make(codes, statuses), ids=file)

    def lines(self) -> list[bytes]:
        """The ordered file's."""
        return self.directory.output_path.read_bytes().splitlines()

    def check(self, rounds: dict[int, str], bad: Collection[str], *, total: int = ROWS) -> None:
        """Every file and figure agrees: `rounds` says which good lines are not of the first round, `bad` which fail."""
        self.check_whole(total)
        for seq, result in enumerate(self.results()):
            if result["custom_id"] in bad:
                assert result["error"]["code"], seq
            else:
                assert result["response"]["body"]["text"].startswith(rounds.get(seq, "round 0")), seq
        errors = self.directory.errors_path.read_bytes().splitlines()
        assert [json.loads(line)["custom_id"] for line in errors] == sorted(bad, key=lambda name: int(name[1:]))
        usage = [result["response"]["body"].get("usage", {}) for result in self.results()]
        with JournalReader.open(self.directory.journal_path) as journal:
            checkpoint = journal.checkpoint()
            counts = checkpoint.counts
            assert (counts.total, counts.fed, counts.done) == (total, total, total)
            assert (counts.failed, sum(counts.failures.values())) == (len(bad), len(bad))
            assert counts.prompt_tokens == sum(each.get("prompt_tokens", 0) for each in usage)
            assert counts.completion_tokens == sum(each.get("completion_tokens", 0) for each in usage)
            assert checkpoint.out_bytes == self.directory.output_path.stat().st_size
            assert checkpoint.error_bytes == self.directory.errors_path.stat().st_size
            for seq, line in enumerate(self.lines()):
                assert journal.result_line(seq, output=self.directory.output_path) == line
