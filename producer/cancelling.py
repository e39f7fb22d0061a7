"""Cancelling a job: what is finished stays, all else gets a `cancelled` result. A collector does it instead of feeding.

Workers come first. Redis says `cancelling`: no claim is granted, and holders, when they renew, stop their requests in
the engine, publish what is finished and give the rest back. Once nothing is held Redis says `sealed`, and nothing more
is published; once the stream is empty, all that could come has come. Then every request without a result gets one here:
those fed, then those read and never fed, then the lines that nobody has read. A commit each step, so memory stays flat.

A crash at any point: the journal says `cancelling`, so the next start looks again for what is held, which is nothing by
then, and goes on where the last commit ended. Nothing is offered or hinted any more.
"""

from collections.abc import Callable, Iterator

from common.errors import ErrorKind
from common.log import Event, get_logger
from common.result_line import Meta
from common.wire import Result
from producer.feeder import STEP_BYTES, STEP_ROWS, Feeder
from producer.given_up import give_up_line
from producer.intake import Taken, row_of
from producer.janitor import Janitor
from producer.job import FencedError, Job
from producer.reader import InputLine
from producer.receiver import Receiver
from producer.rejections import rejected_result
from producer.window import OpenMicroBatch

REASON = "the job was cancelled before this request had a result"

log = get_logger(__name__)


class Cancelling:
    """The end of one job that is cancelled; `step` again and again until it is over."""

    def __init__(self, job: Job, *, feeder: Feeder, receiver: Receiver, janitor: Janitor) -> None:
        """`feeder` feeds no more from now on."""
        self._job = job
        self._receiver = receiver
        self._janitor = janitor
        job.models.waived = True
        self._intake, self._unfed = feeder.surrender()
        self._sealed_at: int | None = None
        """How often the stream had been seen empty when Redis was sealed."""
        self._is_shut = False
        """Whether no result can come from Redis any more."""

    @property
    def waits_for(self) -> str | None:
        """What must happen before the rest can be cancelled."""
        held = self._janitor.held
        if self._is_shut or self._sealed_at is not None or held == 0:
            return None
        return f"cancelling: workers still hold {'some' if held is None else f'{held:,}'} micro-batches"

    def step(self) -> int:
        """Do what can be done now; returns how many requests got their result or their place in the ordered file.

        It is over when every request of the whole input has both. Raises `FencedError`, `redis.RedisError`;
        `RefusedError` when the input has changed since it was fed.
        """
        if not self._is_shut:
            self._shut()
        if not self._is_shut:
            return 0
        frontier = self._job.journal.frontier
        done = self._give_up_round() if self._job.journal.round else self._cancel_rest()
        return max(done, self._job.journal.frontier - frontier)

    def end_without_redis(self, *, before_each: Callable[[], None]) -> None:
        """All steps at once, since Redis is gone for good: what it had of results is lost, and is cancelled too."""
        log.warning(Event.REDIS_GIVEN_UP, job=self._job.id)
        self._is_shut = True
        while not self._job.journal.is_whole:
            before_each()
            self.step()

    def _shut(self) -> None:
        """Nothing held -> sealed -> the stream seen empty: what is published by then is in the journal."""
        job = self._job
        if self._sealed_at is not None:
            self._is_shut = self._receiver.empties > self._sealed_at
        elif self._janitor.held == 0:
            if not job.claims.state(job.id, epoch=job.journal.epoch, state="sealed"):
                raise FencedError
            self._sealed_at = self._receiver.empties
            log.info(Event.JOB_SEALED, job=job.id)

    def _give_up_round(self) -> int:
        """Let what a rerun has not finished keep the result it had before; its lines in the ordered file stay."""
        job, window = self._job, self._job.window
        batches = list(window.open.values())
        unfinished = [seq for batch in batches for seq in batch.missing_seqs()]
        done = job.journal.counts.done
        with job.journal.writing():
            job.journal.close_micro_batches([batch.row.mb for batch in batches])
            job.journal.give_up_round(unfinished)
        for batch in batches:
            window.part(batch, ())
        return job.journal.counts.done - done

    def _cancel_rest(self) -> int:
        """Cancel all that has no result, a step's worth of it."""
        return self._cancel_open() or self._intake.recall() or self._cancel_unread()

    def _cancel_open(self) -> int:
        """Cancel what was fed, a step's worth of it."""
        results: list[Result] = []
        for batch in list(self._job.window.open.values()):
            if len(results) >= STEP_ROWS or sum(len(result.line) for result in results) >= STEP_BYTES:
                break
            results += self._cancelled_of(batch)
        if results:
            with self._receiver.settling_rest(results):
                pass
        return len(results)

    def _cancelled_of(self, batch: OpenMicroBatch) -> Iterator[Result]:
        row, missing = batch.row, batch.missing_seqs()
        lines = self._job.payloads.read_again(missing, self._job.journal, model=row.model)
        return (self._cancelled(seq, line, round_=row.round) for seq, line in zip(missing, lines, strict=True))

    def _cancel_unread(self) -> int:
        """Cancel what was never fed, a step's worth of it; lines that are no requests keep their own error."""
        intake = self._intake
        taken, self._unfed = self._unfed, []
        lines = len(taken)
        for taken_now in self._read_step():
            lines += 1
            if taken_now is not None:
                taken.append(taken_now)
        rows = [row_of(one) for one in taken]
        with self._receiver.settling_rest([self._result_of(one) for one in taken]):
            intake.note(rows, waiting=None)
        intake.settled(rows)
        return lines

    def _read_step(self) -> Iterator[Taken | None]:
        """The next lines of the input, at most a step's worth; None for those that are blank or settled."""
        size_bytes = 0
        for _ in range(STEP_ROWS):
            if size_bytes >= STEP_BYTES or (read := self._intake.read()) is None:
                return
            size_bytes += read[0]
            yield read[1]

    def _result_of(self, taken: Taken) -> Result:
        seq, line = taken
        if isinstance(line, InputLine):
            return self._cancelled(seq, line, round_=0)
        text = rejected_result(self._job.id, seq, line)
        return Result(seq, 0, line.kind.status, line.kind.value, 0, 0, 0, text)

    def _cancelled(self, seq: int, line: InputLine, *, round_: int) -> Result:
        meta = Meta(model=line.model or None)
        return give_up_line(self._job, seq, line, round_=round_, kind=ErrorKind.CANCELLED, reason=REASON, meta=meta)
