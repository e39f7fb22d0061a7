"""The one Celery task: a hint comes in, its micro-batch is claimed, run in the engine's loop, published; then the ack.

Order: publish, then ack. A crash between the two leaves the hint in Redis; it is dropped when it comes again, since
the micro-batch cannot be claimed any more.
"""

import secrets
from collections.abc import Callable
from typing import Any

import redis
from celery import Celery
from celery.exceptions import Reject

from common import keys
from common.broker import REDELIVERY_PRIORITY, TASK_NAME
from common.claim_types import Claimed
from common.claims import Claims
from common.errors import EngineDeadError, WireError
from common.log import Event, get_logger
from common.wire import WIRE_VERSION, MicroBatch, unpack_micro_batch
from worker.admission import Admission
from worker.ending import Ending
from worker.engine_loop import EngineLoop
from worker.holds import Hold
from worker.keeper import Keeper
from worker.metrics import CLAIMS
from worker.options import EXIT_DIED
from worker.outage import Outage
from worker.outcome import Outcome
from worker.runner import MicroBatchRun, Surroundings
from worker.solitude import Solitude
from worker.tracing import Tracing

CLAIM_PAUSE_S = 1.0
NEWER_VERSION_PAUSE_S = 2.0
MOST_CLAIMS = 15
"""Tries while Redis is away; a claim whose answer was lost expires like any other hold that nobody renews."""

log = get_logger(__name__)


class HintDesk:
    """Where hints arrive: what a pool thread does with each. Blocks that thread until the micro-batch is settled."""

    def __init__(
        self,
        *,
        around: Surroundings,
        claims: Claims,
        keeper: Keeper,
        admission: Admission,
        loop: EngineLoop,
        ending: Ending,
        outage: Outage,
        before_arming: Callable[[], object] = lambda: None,
        tracing: Tracing | None = None,
    ) -> None:
        self._around = around
        self._claims = claims
        self._keeper = keeper
        self._admission = admission
        self._loop = loop
        self._ending = ending
        self._outage = outage
        self._tracing = tracing or Tracing()
        self._newer_versions: set[int] = set()
        self._solitude = Solitude(
            claims=claims,
            keeper=keeper,
            admission=admission,
            ending=ending,
            outage=outage,
            before_arming=before_arming,
        )

    def take(self, message_id: str, *, queue: str, version: int, job: str, mb: int) -> Outcome | None:
        """Do what the hint says. None: it is to be handed back, since this worker leaves, is a suspect's, or too old.

        Raises what the engine raises, but for `EngineDeadError`, which ends this process.
        """
        try:
            if self._ending.is_leaving or self._solitude.is_taken:
                log.info(Event.HINT_RETURNED, job=job, mb=mb)
                return None
            if version != WIRE_VERSION:
                return self._leave_to_others(message_id, version, job=job, mb=mb)
            return self._work(message_id, job=job, mb=mb, model=self._model_of(queue))
        finally:
            self._admission.begun(message_id)

    def _leave_to_others(self, message_id: str, version: object, *, job: str, mb: int) -> Outcome | None:
        """A hint that a newer producer sent goes back for workers that can read it, after a pause; others are dropped.

        Without the pause, workers that cannot read it would pass it to each other as fast as Redis answers.
        """
        reason = f"wire version {version!r:.20}, this worker has {WIRE_VERSION}"
        if not isinstance(version, int) or version < WIRE_VERSION:
            log.warning(Event.HINT_DROPPED, job=job, mb=mb, reason=reason)
            return Outcome(reason=reason)
        tell = log.debug if version in self._newer_versions else log.warning
        self._newer_versions.add(version)
        tell(Event.HINT_RETURNED, job=job, mb=mb, reason=reason)
        self._admission.begun(message_id)
        self._ending.wait(NEWER_VERSION_PAUSE_S)
        return None

    def _work(self, message_id: str, *, job: str, mb: int, model: str) -> Outcome | None:
        token = secrets.token_hex(16)
        claimed = self._claim(job, mb, token=token, model=model)
        if claimed is None or claimed.z is None:
            return Outcome(reason="Redis is away" if claimed is None else claimed.answer)
        batch = self._unpack(claimed.z, job=job, mb=mb, token=token)
        if batch is None:
            return Outcome(reason="unreadable")
        hold, run = self._begin(batch, claimed, token=token, model=model)
        if batch.kind == "solo":
            return self._run_alone(hold, run, message_id)
        return self._run_and_settle(hold, run, message_id)

    def _run_alone(self, hold: Hold, run: MicroBatchRun, message_id: str) -> Outcome | None:
        """A suspect runs in an empty engine or not at all; then the next one, before others come in."""
        with self._admission.held_back():
            self._admission.begun(message_id)
            try:
                entered = self._solitude.enter(hold)
                if not entered:
                    hold.abandon(hold.whole)
                done = self._run_and_settle(hold, run, message_id)
            finally:
                self._solitude.leave(hold)
            if entered:
                self._solitude.await_next()
        return done

    def _run_and_settle(self, hold: Hold, run: MicroBatchRun, message_id: str) -> Outcome | None:
        settled = False
        try:
            hold.trace.begun()
            self._run(run, message_id)
            hold.trace.ran()
            settled = self._keeper.settle(hold)
        finally:
            self._keeper.discard(hold)
            hold.trace.end("lost" if hold.lost else "published" if settled else "handed_back")
        if not settled and self._outage.lasted_s():
            self._ending.left_something = True
        return Outcome(hold.results.values()) if settled or not self._ending.is_leaving else None

    def _run(self, run: MicroBatchRun, message_id: str) -> None:
        try:
            self._loop.submit(run.run(on_begun=lambda: self._admission.begun(message_id))).result()
        except EngineDeadError as error:
            self._ending.die_of_engine(error)

    def _begin(self, batch: MicroBatch, claimed: Claimed, *, token: str, model: str) -> tuple[Hold, MicroBatchRun]:
        trace = self._tracing.begin(batch, dlv=claimed.dlv)
        run = MicroBatchRun(
            batch,
            self._around,
            got=claimed.got,
            dlv=claimed.dlv,
            on_result=trace.over(lambda position, result: hold.add(position, result)),
            on_retry=trace.retried,
        )
        hold = Hold(
            batch,
            token=token,
            got=claimed.got,
            model=model,
            abandon=lambda mask: self._loop.call(run.abandon, mask),
            is_stuck=lambda: run.stuck,
            trace=trace,
        )
        self._keeper.add(hold)
        if self._ending.is_stopping:
            hold.abandon(hold.whole)
        return hold, run

    def _claim(self, job: str, mb: int, *, token: str, model: str) -> Claimed | None:
        """The claim's answer; None while Redis stays away. The same token again is the same claim."""
        identity = self._around.identity
        for _ in range(MOST_CLAIMS):
            try:
                claimed = self._claims.claim(
                    job, mb, token=token, worker=identity.incarnation, model=model, digest=identity.facts.digest
                )
            except redis.RedisError as error:
                self._outage.missed(error)
                if not self._ending.wait(CLAIM_PAUSE_S):
                    return None
                continue
            CLAIMS.labels(claimed.answer).inc()
            event = Event.HOLD_CLAIMED if claimed.answer == "GO" else Event.HINT_DROPPED
            log.debug(event, job=job, mb=mb, answer=claimed.answer)
            return claimed
        return None

    def _unpack(self, blob: bytes, *, job: str, mb: int, token: str) -> MicroBatch | None:
        """The payload; one that this worker cannot read goes back for others."""
        try:
            batch = unpack_micro_batch(blob)
            if (batch.job, batch.mb) != (job, mb):
                raise WireError("a payload of another micro-batch")
            return batch
        except WireError as error:
            log.error(Event.PAYLOAD_REFUSED, job=job, mb=mb, reason=str(error))
        try:
            self._claims.release(job, mb, token=token)
        except redis.RedisError as error:
            self._outage.missed(error)
        return None

    def _model_of(self, queue: str) -> str:
        """The model whose queue the hint came by: the digest is pinned under this name."""
        return queue.removeprefix(keys.QUEUE_PREFIX).removesuffix(f"@{self._around.identity.facts.digest}")


def register_task(app: Celery, desk: HintDesk, ending: Ending) -> None:
    """Make `desk` answer the hints that `app` receives."""

    def run_micro_batch(self: Any, version: int, job: str, mb: int, _requests: int) -> Outcome:
        try:
            queue = self.request.delivery_info["routing_key"]
            done = desk.take(self.request.id, queue=queue, version=version, job=job, mb=mb)
        except Exception as error:
            ending.die(EXIT_DIED, event=Event.WORKER_DIED, reason=f"{type(error).__name__}: {error}")
        if done is None:
            if ending.is_leaving:  # kombu puts it at the tail of its priority, behind the whole window
                self.request.properties["priority"] = REDELIVERY_PRIORITY
            raise Reject("the worker leaves, has a suspect alone, or cannot read it", requeue=True)
        return done

    app.task(run_micro_batch, name=TASK_NAME, bind=True, acks_late=True, ignore_result=True, max_retries=0)
