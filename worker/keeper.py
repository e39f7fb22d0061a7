"""Keeps what this worker holds: publishes finished results about once a second, renews, claims again what Redis forgot.

Its `tick` runs in one thread, woken from the engine's own loop: when that loop hangs, nothing is renewed and the holds
are lost, as they should be. The last publish of a micro-batch is made by the thread that waits for it (`settle`).
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import redis

from common.claim_types import Publication, PublishAnswer
from common.claims import Claims
from common.exposition import OK
from common.log import Event, get_logger
from common.wire import ENTRY_BYTES
from worker.engine_loop import EngineLoop
from worker.holds import Hold
from worker.metrics import HOLDS, PUBLISH_SECONDS, RESULTS, TOKENS
from worker.outage import Outage

RECLAIM_EVERY_S = 3.0
RECLAIM_PATIENCE_S = {"NOJOB": 60.0, "rebuilding": 60.0, "paused": 60.0, "GONE": 10.0}
"""How long a hold that Redis forgot is asked for again, by what the claim says: a collector rebuilds a job within
seconds, and looks for a micro-batch that a cut tail took away every two. Any other answer ends the hold at once."""
REDIS_PAUSE_S = 1.0
ROUND_BYTES = 4 * ENTRY_BYTES
"""What is published in one round trip, give or take one entry."""
STOP_STATES = frozenset({"cancelling", "sealed", "done"})
"""States of a job in which what runs is to be stopped and handed back."""

log = get_logger(__name__)


class Keeper:
    """Everything this worker holds, by token. Any thread may call anything."""

    def __init__(
        self,
        claims: Claims,
        *,
        incarnation: str,
        digest: str,
        renew_s: float,
        outage: Outage,
        is_waiting: Callable[[float], bool],
        on_taken: Callable[[], object] = lambda: None,
    ) -> None:
        """`is_waiting`: wait so many seconds; False once there is no more time to wait for Redis.

        `on_taken` is called at each claim.
        """
        self.taken = 0
        """Micro-batches claimed in this life."""
        self.published = 0
        """Results published in this life."""
        self.tokens = 0
        """Prompt and completion tokens of those results."""
        self._claims = claims
        self._incarnation = incarnation
        self._digest = digest
        self._renew_s = renew_s
        self._outage = outage
        self._is_waiting = is_waiting
        self._on_taken = on_taken
        self._holds: dict[str, Hold] = {}
        self._renew_at = 0.0
        HOLDS.set_function(lambda: len(self._holds))

    def start(self, loop: EngineLoop, *, every_s: float) -> None:
        """Tick about every `every_s` seconds, for as long as the engine's loop moves on."""
        woken = threading.Event()
        loop.every(every_s, woken.set)
        threading.Thread(target=self._run, args=(woken,), name="keeper", daemon=True).start()

    def holds(self) -> list[Hold]:
        """What is held now."""
        return list(self._holds.values())

    def add(self, hold: Hold) -> None:
        """Keep `hold`; it was claimed just now."""
        self._holds[hold.token] = hold
        self.taken += 1
        self._on_taken()

    def discard(self, hold: Hold) -> None:
        """Keep `hold` no longer."""
        self._holds.pop(hold.token, None)

    def stop_runs(self) -> None:
        """Stop everything that still runs; what is finished stays to be published."""
        for hold in self.holds():
            hold.abandon(hold.whole)

    def lose(self, hold: Hold, *, reason: str) -> None:
        """It is not ours any more: stop what runs of it, publish nothing."""
        hold.lost = True
        hold.abandon(hold.whole)
        log.warning(Event.HOLD_LOST, job=hold.job, mb=hold.mb, reason=reason)

    def settle(self, hold: Hold) -> bool:
        """Publish what is finished of `hold`, whose run has ended, and give back the rest; blocks while Redis is away.

        True: nothing of it is left to be run, or it is not ours any more. False: it was given back.
        """
        while not hold.is_over:
            try:
                with hold.lock:
                    if hold.orphaned_at is not None:
                        self._reclaim(hold)
                    else:
                        self._publish(hold.job, [hold])
                if hold.is_over or (hold.orphaned_at is None and not hold.unsent()):
                    break
                pause_s = RECLAIM_EVERY_S if hold.orphaned_at is not None else 0.0
            except redis.RedisError as error:
                self._outage.missed(error)
                pause_s = REDIS_PAUSE_S
            if pause_s and not self._is_waiting(pause_s):
                break
        return True if hold.is_over else self._give_back(hold)

    def tick(self) -> None:
        """Publish what is new, renew when it is time, claim again what was lost. Raises `redis.RedisError`."""
        self.publish()
        now = time.monotonic()
        if now >= self._renew_at:
            self._renew_at = now + self._renew_s
            self.renew()
        else:
            self._heed()
        for hold in self.holds():
            if hold.orphaned_at is not None and not hold.is_over and now >= hold.next_reclaim_at:
                with hold.lock:
                    self._reclaim(hold)

    def publish(self) -> None:
        """Publish every finished result that is not in Redis yet. Raises `redis.RedisError`."""
        for job, holds in _by_job(self.holds()):
            locked = [hold for hold in holds if hold.unsent() and hold.lock.acquire(blocking=False)]
            try:
                self._publish(job, [hold for hold in locked if hold.orphaned_at is None and not hold.is_over])
            finally:
                for hold in locked:
                    hold.lock.release()

    def renew(self) -> None:
        """Say that what is held is still worked on, and hear what is no longer wanted. Raises `redis.RedisError`."""
        for job, holds in _by_job(self.holds()):
            kept = [hold for hold in holds if hold.orphaned_at is None and not hold.is_over and not hold.is_stuck()]
            if not kept:
                continue
            renewal = self._claims.renew(job, [(hold.mb, hold.token) for hold in kept])
            for hold, answer in zip(kept, renewal.holds, strict=True):
                if isinstance(answer, int):
                    hold.hear(answer)
                elif answer == "FULL":
                    hold.full = True
                    hold.abandon(hold.whole)
                elif answer == "HELD":
                    self.lose(hold, reason="held by another")
                else:
                    self._orphan(hold)
                if renewal.state in STOP_STATES:
                    hold.abandon(hold.whole)

    def _heed(self) -> None:
        """Stop what runs of jobs that are cancelled: whoever cancels one waits for less than a renewal."""
        running = _by_job(hold for hold in self.holds() if hold.is_wanted)
        for (_, holds), state in zip(running, self._claims.states([job for job, _ in running]), strict=True):
            if state in STOP_STATES:
                for hold in holds:
                    hold.abandon(hold.whole)

    def _run(self, woken: threading.Event) -> None:
        while woken.wait():
            woken.clear()
            try:
                self.tick()
            except redis.RedisError as error:
                self._outage.missed(error)

    def _publish(self, job: str, holds: list[Hold]) -> None:
        for round_ in _rounds([(hold, publication) for hold in holds for publication in hold.publications()]):
            with PUBLISH_SECONDS.time():
                answers = self._claims.publish(job, [publication for _, publication in round_])
            for (hold, publication), answer in zip(round_, answers, strict=True):
                self._settle_one(hold, publication, answer)

    def _settle_one(self, hold: Hold, publication: Publication, answer: PublishAnswer) -> None:
        if answer == "REFUSED":
            self._orphan(hold)
            return
        self._count(hold, publication.mask & ~hold.counted)
        hold.sent |= publication.mask
        hold.full = hold.full or answer == "FULL"

    def _count(self, hold: Hold, mask: int) -> None:
        hold.counted |= mask
        sums: dict[str, list[int]] = {}
        for position, result in list(hold.results.items()):
            if mask >> position & 1:
                row = sums.setdefault(result.code or OK, [0, 0, 0])
                row[0] += 1
                row[1] += result.prompt_tokens
                row[2] += result.completion_tokens
        for outcome, (count, prompt_tokens, completion_tokens) in sums.items():
            self.published += count
            self.tokens += prompt_tokens + completion_tokens
            RESULTS.labels(outcome).inc(count)
            TOKENS.labels("prompt", outcome).inc(prompt_tokens)
            TOKENS.labels("completion", outcome).inc(completion_tokens)

    def _reclaim(self, hold: Hold) -> None:
        """Claim again under the same token: what runs goes on, what Redis forgot is published again."""
        now = time.monotonic()
        hold.next_reclaim_at = now + RECLAIM_EVERY_S
        answer, _, got, _ = self._claims.claim(
            hold.job, hold.mb, token=hold.token, worker=self._incarnation, model=hold.model, digest=self._digest
        )
        if answer == "GO":
            hold.orphaned_at = None
            hold.hear(got)
            log.info(Event.HOLD_RECLAIMED, job=hold.job, mb=hold.mb)
        elif now - (hold.orphaned_at or now) >= RECLAIM_PATIENCE_S.get(answer, 0.0):
            self.lose(hold, reason=answer)

    def _orphan(self, hold: Hold) -> None:
        """Redis does not know of this hold any more. A suspect is never claimed again: its run must stay one run."""
        if hold.kind == "solo":
            self.lose(hold, reason="a suspect whose hold was lost")
        elif hold.orphaned_at is None:
            hold.orphaned_at = time.monotonic()
            hold.next_reclaim_at = 0.0

    def _give_back(self, hold: Hold) -> bool:
        try:
            released = hold.orphaned_at is None and self._claims.release(hold.job, hold.mb, token=hold.token)
        except redis.RedisError as error:
            self._outage.missed(error)
            return False
        log.info(Event.HOLD_RELEASED, job=hold.job, mb=hold.mb, released=released, unsent=len(hold.unsent()))
        return False


def _by_job(holds: Iterable[Hold]) -> list[tuple[str, list[Hold]]]:
    grouped: dict[str, list[Hold]] = defaultdict(list)
    for hold in holds:
        grouped[hold.job].append(hold)
    return list(grouped.items())


def _rounds(publications: list[tuple[Hold, Publication]]) -> Iterator[list[tuple[Hold, Publication]]]:
    """`publications` in round trips of bounded size, so that a slow line does not run into the socket's timeout."""
    round_: list[tuple[Hold, Publication]] = []
    size = 0
    for hold, publication in publications:
        round_.append((hold, publication))
        size += len(publication.blob)
        if size >= ROUND_BYTES:
            yield round_
            round_, size = [], 0
    if round_:
        yield round_
