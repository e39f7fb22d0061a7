"""Any order of what collectors, workers, the network and a failing Redis may do, against a real server.

Each step goes to Redis and to a model in Python, which must agree; the invariants are checked after every call, and at
the end of each run one fresh collector and one good worker must bring everything home.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from common import keys
from common.claim_types import Publication
from tests.integration.claims_collector import FAULT, MOSTLY, NUMBER, SELDOM, STATES, WINDOW, CollectorMachine
from tests.integration.claims_world import JOB, MODEL, blob_of

ROUNDS = 3
MASKS = st.sampled_from([1, 2, 4, 8, 0b1_0000_0000, 0b11_0001, 0b1_1111_1111])
DIGESTS = ("d", "d", "d", "d", "d", "e")
"""Of six workers, one has another build of the model."""


class Hold(NamedTuple):
    """What a worker believes it holds."""

    mb: int
    token: str
    worker: int


class ClaimsMachine(CollectorMachine):
    """One job, a collector after the other, six workers, a network and a server with faults."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: list[Hold] = []

    @precondition(lambda self: self.journal.rows)
    @rule(pick=NUMBER, worker=st.integers(0, 5), doubled=SELDOM, lost_reply=SELDOM)
    def claim(self, pick: int, worker: int, doubled: bool, lost_reply: bool) -> None:
        mb = self.hints[pick % len(self.hints)] if self.hints else self._any_mb(pick)
        if self.hints and not doubled:
            self.hints.remove(mb)
        self.tokens += 1
        hold = Hold(mb, f"{self.tokens:032x}", worker)
        if lost_reply:
            self._claim(hold)
        if self._claim(hold):
            self.holds.append(hold)

    @precondition(lambda self: self.holds)
    @rule(pick=NUMBER)
    def claim_again_in_place(self, pick: int) -> None:
        self._claim(self.holds[pick % len(self.holds)])

    @precondition(lambda self: self.holds)
    @rule(pick=NUMBER, mask=MASKS, lost_reply=SELDOM)
    def publish(self, pick: int, mask: int, lost_reply: bool) -> None:
        hold = self.holds[pick % len(self.holds)]
        answers = [self._publish([hold], mask)[0] for _ in range(1 + lost_reply)]
        if answers[-1] == "FULL":
            self.holds.remove(hold)

    @precondition(lambda self: len(self.holds) > 1)
    @rule()
    def publish_all_at_once(self) -> None:
        self._publish(self.holds, 511)

    @rule(seed=st.integers(0, 2**32))
    def go_on_for_a_while(self, seed: int) -> None:
        """Steps without a new fault, among them one fresh look: by single rules few runs come this far."""
        random = Random(seed)
        for _ in range(8):
            random.choice(self._possible_steps(random))()
        self.look()
        self.expire_what_an_earlier_look_saw(random.randrange(100))
        for _ in range(4):
            random.choice(self._possible_steps(random))()

    @precondition(lambda self: self.holds)
    @rule()
    def renew(self) -> None:
        self.world.do("renew", [(hold.mb, hold.token) for hold in self.holds])

    @precondition(lambda self: self.holds)
    @rule(pick=NUMBER)
    def arm(self, pick: int) -> None:
        hold = self.holds[pick % len(self.holds)]
        self.world.do("arm", hold.mb, token=hold.token)

    @precondition(lambda self: self.holds)
    @rule(pick=NUMBER, killed=SELDOM)
    def let_go(self, pick: int, killed: bool) -> None:
        hold = self.holds.pop(pick % len(self.holds))
        if not killed:
            self.world.do("release", hold.mb, token=hold.token)

    @FAULT
    @rule(want=st.sampled_from(["pause:a", "resume:b", "cancel:c"]))
    def ask(self, want: str) -> None:
        self.world.do("ask", want)
        self.fault(noticed=False)

    @rule(pick=st.integers(0, 10_000))
    def an_earlier_call_arrives_again(self, pick: int) -> None:
        self.world.repeat(pick)

    @precondition(lambda self: self.steps_to_fault <= 0 and self.holds)
    @rule(state=STATES)
    def change_state_under_holders(self, state: str) -> None:
        self.change_state(state)
        self._publish(self.holds, 511)

    @FAULT
    @rule(noticed=MOSTLY)
    def flush(self, noticed: bool) -> None:
        self.committed = []
        self.world.flush()
        self.fault(noticed)

    @FAULT
    @rule(calls=st.integers(0, 7), noticed=MOSTLY)
    def cut_the_log(self, calls: int, noticed: bool) -> None:
        self.committed = []
        self.world.cut(calls)
        self.fault(noticed)

    def teardown(self) -> None:
        """With a fresh collector and one worker, all that was fed comes home, and Redis is left clean."""
        self.wanted, self.committed = "open", []
        self._take()
        self.janitor()
        for _ in range(ROUNDS):
            if self.journal.open:
                self._work_off()
        assert not self.journal.open, f"stuck: {sorted(self.journal.open)}"
        assert set(self.journal.results) == set(range(self.seqs))
        assert self.world.claims.finish(JOB, epoch=self.journal.epoch)
        assert self.client.keys() == [keys.info(JOB).encode()]

    def _work_off(self) -> None:
        digest = self.journal.digests.get(MODEL, self.world.table.info.get(f"digest:{MODEL}", "d"))
        for mb, seen in self.world.look().micro_batches.items():
            if seen.st == "HELD":
                self._expire(mb, seen.token or "", seen.beat)
            self.tokens += 1
            hold = Hold(mb, f"{self.tokens:032x}", DIGESTS.index(digest or "d"))
            if self._claim(hold):
                assert self._publish([hold], 511) == ["FULL"]
        self.receive(100)
        self.world.do("drop_entries", self.committed)
        self.committed = []
        self.janitor()

    def _possible_steps(self, random: Random) -> list[Callable[[], None]]:
        pick, maybe = random.randrange(100), random.random() < 0.3
        steps: list[Callable[[], None]] = [
            lambda: self.receive(2),
            self.look,
            self.janitor,
            self.drop_what_is_committed,
        ]
        steps += [lambda: self.expire_what_an_earlier_look_saw(pick), lambda: self.an_earlier_call_arrives_again(pick)]
        if len(self.journal.open) < WINDOW:
            steps += [lambda: self.feed(random.choice((9, 8, 5, 1)), maybe, 1)] * 2
        if self.journal.rows:
            steps += [lambda: self.claim(pick, random.randrange(6), maybe, random.random() < 0.3)] * 3
            steps += [lambda: self.mark(pick)]
        if self.holds:
            mask = random.randrange(1, 512)
            steps += [lambda: self.publish(pick, mask, maybe), self.renew] * 3
            steps += [lambda: self.claim_again_in_place(pick), lambda: self.arm(pick), lambda: self.let_go(pick, maybe)]
        return steps

    def _claim(self, hold: Hold) -> bool:
        claimed = self.world.do(
            "claim",
            hold.mb,
            token=hold.token,
            worker=f"w-{hold.worker}",
            model=MODEL,
            digest=DIGESTS[hold.worker],
        )
        return bool(claimed.answer == "GO")

    def _publish(self, holds: list[Hold], mask: int) -> list[str]:
        publications = []
        for hold in holds:
            row = self.journal.rows[hold.mb]
            fitting = mask & (1 << len(row)) - 1 or 1
            seqs = [seq for i, seq in enumerate(row) if fitting >> i & 1]
            publications.append(Publication(hold.mb, hold.token, fitting, blob_of(hold.token, seqs)))
        return list(self.world.do("publish", publications))


def test_any_order_of_events(valkey: redis.Redis) -> None:
    """Every order keeps the invariants, and ends well."""
    machine = type("Machine", (ClaimsMachine,), {"client": valkey})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=200,
            stateful_step_count=40,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
