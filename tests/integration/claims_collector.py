"""What a collector may do, in any order, as rules of a state machine; the workers' and the network's come on top."""

from typing import ClassVar

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from common.claim_types import Look
from tests.integration.claims_world import JOB, World, seqs_in, token_in

WINDOW = 5
NUMBER = st.integers(0, 99)
SIZES = st.sampled_from([9, 8, 5, 2, 1])
SELDOM = st.sampled_from([False, False, True])
MOSTLY = st.sampled_from([True, True, True, False])
STATES = st.sampled_from(["open", "paused", "cancelling", "sealed"])
STALE_CALLS = st.sampled_from(["offer", "expire", "mark", "close", "state"])
FAULT = precondition(lambda self: self.steps_to_fault <= 0)


class CollectorMachine(RuleBasedStateMachine):
    """One job, a collector after the other."""

    client: ClassVar[redis.Redis]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.client)
        self.journal = self.world.journal
        self.hints: list[int] = []
        self.committed: list[str] = []
        """Entries in the journal and not yet dropped from the stream."""
        self.wanted = "open"
        self.last_look: Look | None = None
        self.mixed = False
        self.tokens = 0
        self.seqs = 0
        self.steps_to_fault = 0

    @initialize(steps_between_faults=st.sampled_from([1, 10, 25]), mixed=SELDOM)
    def first_collector(self, steps_between_faults: int, mixed: bool) -> None:
        """Some runs are all trouble, in others work goes far before any; some jobs take any build of their model."""
        self.mixed = mixed
        self.steps_between_faults = self.steps_to_fault = steps_between_faults
        self._take()
        self.janitor()

    @invariant()
    def count_steps(self) -> None:
        self.steps_to_fault -= 1

    def fault(self, noticed: bool) -> None:
        """Something has just gone wrong, and the collector sees it at once or goes on for a while."""
        self.steps_to_fault = self.steps_between_faults
        if noticed:
            self.janitor()

    @FAULT
    @rule(noticed=MOSTLY)
    def new_collector(self, noticed: bool) -> None:
        self.committed, self.last_look = [], None
        self._take()
        self.fault(noticed)

    @FAULT
    @rule(noticed=MOSTLY)
    def collector_dies_before_it_has_taken_the_job(self, noticed: bool) -> None:
        """Redis knows the next epoch, the journal does not: the next collector asks for the same one."""
        assert self._own(self.journal.epoch + 1)
        self.fault(noticed)

    @FAULT
    @rule(back=st.integers(0, 2), short=st.integers(0, 2), noticed=MOSTLY)
    def old_copy_of_the_journal(self, back: int, short: int, noticed: bool) -> None:
        self._own(max(1, self.journal.epoch - back), short=short)
        self.fault(noticed)

    @precondition(lambda self: len(self.journal.open) < WINDOW)
    @rule(size=SIZES, split=SELDOM, hints=st.sampled_from([1, 1, 2, 0]))
    def feed(self, size: int, split: bool, hints: int) -> None:
        seqs = sorted(
            seq for mb in self.journal.open for seq in self.journal.rows[mb] if seq not in self.journal.results
        )
        chosen = tuple(dict.fromkeys(seqs))[:size] if split else ()
        if not chosen:
            chosen = tuple(range(self.seqs, self.seqs + size))
            self.seqs += size
        mb = len(self.journal.rows) + 1
        self.journal.rows[mb] = chosen
        self.journal.deliveries[mb] = 0
        self.journal.open.add(mb)
        self.world.do("offer", [self.journal.offer(mb)], epoch=self.journal.epoch)
        self.hints += [mb] * hints

    @rule(count=st.integers(1, 3))
    def receive(self, count: int) -> None:
        for entry in self.world.claims.entries(JOB, count=count):
            assert entry.mb is not None
            assert (entry.mb, token_in(entry.blob)) in self.world.granted, "a result of a token that was never let in"
            for seq in seqs_in(entry.blob):
                self.journal.results.setdefault(seq, token_in(entry.blob))
            self.committed.append(entry.id)

    @precondition(lambda self: self.committed)
    @rule()
    def drop_what_is_committed(self) -> None:
        self.world.do("drop_entries", self.committed)
        self.committed = []

    @precondition(lambda self: self.steps_to_fault <= 0 and self.world.table.stream)
    @rule(noticed=MOSTLY)
    def quarantine(self, noticed: bool) -> None:
        mb, blob = self.world.table.stream[0]
        self.world.spoiled |= {(mb, seq) for seq in seqs_in(blob)}
        self.world.do("drop_entries", self.world.table.ids[:1])
        self.fault(noticed)

    @rule()
    def look(self) -> None:
        self.last_look = self.world.look()

    @precondition(lambda self: self.last_look and self.last_look.micro_batches)
    @rule(pick=NUMBER)
    def expire_what_an_earlier_look_saw(self, pick: int) -> None:
        if self.last_look is None or not self.last_look.micro_batches:
            return
        mb, seen = sorted(self.last_look.micro_batches.items())[pick % len(self.last_look.micro_batches)]
        self._expire(mb, seen.token or "", seen.beat)

    @precondition(lambda self: self.journal.rows)
    @rule(pick=NUMBER)
    def mark(self, pick: int) -> None:
        mb = self._any_mb(pick)
        self.world.do("mark", mb, epoch=self.journal.epoch, mask=self.journal.got(mb))

    @FAULT
    @rule(state=STATES)
    def change_state(self, state: str) -> None:
        self.wanted = state
        self.world.do("state", epoch=self.journal.epoch, state=state)
        self.fault(noticed=False)

    @precondition(lambda self: self.wanted != "open")
    @rule()
    def open_again(self) -> None:
        self.wanted = "open"
        self.world.do("state", epoch=self.journal.epoch, state="open")

    @rule()
    def janitor(self) -> None:
        """One whole pass with nobody between; afterwards I8 holds."""
        look, epoch = self.world.look(), self.journal.epoch
        if look.epoch != epoch and not self._own(epoch):
            self._take()
            epoch = self.journal.epoch
        for mb in sorted(self.journal.open):
            if self.journal.complete(mb):
                self.journal.open.discard(mb)
            elif look.micro_batches and mb in look.micro_batches and look.stream_length == 0:
                self._repair(mb, look.micro_batches[mb].got)
        self.world.do("close", sorted(set(look.micro_batches) - self.journal.open), epoch=epoch)
        self.world.do("offer", [self.journal.offer(mb) for mb in sorted(self.journal.open)], epoch=epoch)
        self.world.do("state", epoch=epoch, state=self.wanted)
        self.journal.digests = look.digests | self.journal.digests
        assert set(self.world.look().micro_batches) == self.journal.open, "I8: open in Redis is not open in the journal"
        assert len(self.journal.open) <= WINDOW

    @precondition(lambda self: self.journal.rows)
    @rule(pick=NUMBER, other=st.sampled_from([-1, 1]), call=STALE_CALLS)
    def stale_collector_writes(self, pick: int, other: int, call: str) -> None:
        mb, epoch = self._any_mb(pick), int(self.world.table.info.get("epoch", 5)) + other
        batch = self.world.table.batches.get(mb)
        token, beat = (batch.tok or "", batch.beat) if batch else ("", 0)
        do = self.world.do
        match call:
            case "offer":
                do(call, [self.journal.offer(mb)._replace(got=0)], epoch=epoch)
            case "expire":
                do(call, mb, epoch=epoch, token=token, beat=beat)
            case "mark":
                do(call, mb, epoch=epoch, mask=self.journal.got(mb))
            case "close":
                do(call, [mb], epoch=epoch)
            case "state":
                do(call, epoch=epoch, state="open")

    def _own(self, epoch: int, *, short: int = 0) -> bool:
        high = max(0, len(self.journal.rows) - short)
        owned = self.world.do(
            "own",
            epoch=epoch,
            state="rebuilding",
            mb_high=high,
            digests=dict(self.journal.digests),
            manifest="{}",
            mixed=self.mixed,
        )
        return bool(owned)

    def _take(self) -> None:
        assert self._own(self.journal.epoch + 1), "the journal is not an old copy"
        self.journal.epoch += 1

    def _expire(self, mb: int, token: str, beat: int) -> None:
        if self.world.do("expire", mb, epoch=self.journal.epoch, token=token, beat=beat) == "OK":
            self.journal.deliveries[mb] += 1
            self.hints.append(mb)

    def _repair(self, mb: int, got: int) -> None:
        missing = {(mb, seq) for i, seq in enumerate(self.journal.rows[mb]) if got >> i & 1} - {
            (mb, seq) for seq in self.journal.results
        }
        if missing:
            assert missing <= self.world.spoiled, "a result was lost that nobody dropped"
            self.world.do("close", [mb], epoch=self.journal.epoch)
            self.world.spoiled -= missing

    def _any_mb(self, pick: int) -> int:
        return 1 + pick % len(self.journal.rows)
