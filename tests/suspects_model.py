"""A fleet, its deaths and one job in virtual time: who runs what, who dies of it, and whom the policy calls poison.

The policy is `producer.suspects` itself; workers, queue, journal and janitor are as simple as they can be. Requests
that are poison kill whatever process runs them; processes are also killed, drained and lost by chance.
"""

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from producer.suspects import Loss, Standing, cause_of_loss, free_turns, judge, next_in_turn, part

LOOK_S = 2.0
EXPIRE_S = 20.0
RESTART_S = 5.0
CHANCE_S = 150.0
"""Between two ends of one worker by chance, in the mean: half of them kills, the others drains and lost hosts."""
CHANCES = ("outside", "outside", "left", "vanished")
LIMIT_S = 100_000.0

Judge = Callable[[Iterable[Loss]], Standing]


@dataclass(slots=True)
class Vehicle:
    """One micro-batch."""

    seqs: list[int]
    solo: bool = False
    holder: "Worker | None" = None


@dataclass(slots=True, eq=False)
class Worker:
    """One place for lives of a worker process."""

    places: int
    up: bool = True
    life: int = 0
    held: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    """Seqs in its engine."""
    suspect: int | None = None
    """The solo it has claimed."""
    armed: bool = False


class Fleet:
    """One seed's fleet and job."""

    def __init__(self, seed: int, *, judged_by: Judge = judge, crowded: bool = False) -> None:
        """`crowded`: suspects do not wait for an empty engine."""
        self.rng = rng = random.Random(seed)
        self.judge = judged_by
        self.crowded = crowded
        self.now_s = 0.0
        self.deaths: Counter[str] = Counter()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number = 0
        self.workers = [Worker(rng.choice((4, 8, 16))) for _ in range(rng.choice((1, 2, 3, 8, 17)))]
        self.rows = rng.randint(8, 40)
        poison = rng.sample(range(self.rows), rng.choice((0, 1, 1, 2, 3)))
        self.poison = {seq: rng.choice(("self", "outside")) for seq in poison}
        self.length_s = [rng.lognormvariate(0.2, 0.9) for _ in range(self.rows)]
        self.results: set[int] = set()
        self.called: set[int] = set()
        self.losses: dict[int, list[Loss]] = {}
        self.open: dict[int, Vehicle] = {}
        self.queue: deque[int] = deque()
        self.urgent: deque[int] = deque()
        self.travelling: set[int] = set()
        self.most_alone = 0
        size = rng.choice((1, 4, 8))
        for start in range(0, self.rows, size):
            self.queue.append(self.add(list(range(start, min(start + size, self.rows)))))

    def run(self) -> "Fleet":
        """Until each request has a result, its own or the collector's."""
        for worker in self.workers:
            self.at(self.rng.expovariate(1 / CHANCE_S), self.chance(worker))
        self.at(self.rng.uniform(0, 60), self.restart_collector)
        self.serve()
        while len(self.results) + len(self.called) < self.rows:
            self.now_s, _, event = heapq.heappop(self.events)
            assert self.now_s < LIMIT_S, "stuck"
            event()
            self.let_travel()
            self.serve()
        return self

    def add(self, seqs: list[int], *, solo: bool = False) -> int:
        """A new micro-batch; returns its number."""
        self.number += 1
        self.open[self.number] = Vehicle(seqs, solo)
        return self.number

    def at(self, wait_s: float, event: Callable[[], None]) -> None:
        """Let `event` happen after `wait_s`."""
        self.number += 1
        heapq.heappush(self.events, (self.now_s + wait_s, self.number, event))

    def missing(self, mb: int) -> list[int]:
        """Seqs of `mb` without a result."""
        return [seq for seq in self.open[mb].seqs if seq not in self.results and seq not in self.called]

    # ---- the workers

    def serve(self) -> None:
        """Let workers claim what is hinted, the urgent first."""
        for worker in self.rng.sample(self.workers, len(self.workers)):
            while worker.up and worker.suspect is None and len(worker.running) < worker.places:
                if not (queue := self.urgent or self.queue):
                    return
                mb = queue.popleft()
                if mb in self.open and self.open[mb].holder is None:  # else a doubled hint
                    self.claim(worker, mb)

    def claim(self, worker: Worker, mb: int) -> None:
        """What a worker does with its claim."""
        vehicle = self.open[mb]
        vehicle.holder = worker
        worker.held.add(mb)
        if vehicle.solo:
            worker.suspect = mb
            self.arm(worker)
        else:
            for seq in self.missing(mb):
                self.begin(worker, seq)

    def arm(self, worker: Worker) -> None:
        """Let the suspect in once nothing else runs."""
        if worker.suspect is not None and not worker.armed and (self.crowded or not worker.running):
            worker.armed = True
            self.most_alone = max(self.most_alone, sum(other.armed for other in self.workers))
            self.begin(worker, self.open[worker.suspect].seqs[0])

    def begin(self, worker: Worker, seq: int) -> None:
        """One request enters the engine: it comes to its end, or its worker does."""
        worker.running.add(seq)
        life = worker.life

        def finish() -> None:
            if worker.life == life:
                self.finish(worker, seq)

        def kill() -> None:
            if worker.life == life:
                self.die(worker, self.poison[seq])

        length_s = self.length_s[seq]
        if seq in self.poison:
            self.at(length_s * self.rng.choice((0.02, 0.5, 0.98)), kill)
        else:
            self.at(length_s, finish)

    def finish(self, worker: Worker, seq: int) -> None:
        """A result; what is complete is closed."""
        worker.running.discard(seq)
        self.results.add(seq)
        for mb in [mb for mb in worker.held if not self.missing(mb)]:
            self.close(worker, mb)
        self.arm(worker)

    def close(self, worker: Worker, mb: int) -> None:
        """Nothing is missing from `mb`."""
        worker.held.discard(mb)
        self.open.pop(mb, None)
        self.travelling.discard(mb)
        if worker.suspect == mb:
            worker.suspect, worker.armed = None, False

    def die(self, worker: Worker, cause: str) -> None:
        """One life ends; its holds are found lost some time later."""
        self.deaths[cause] += 1
        lost = [(mb, worker.armed) for mb in worker.held]
        worker.up, worker.suspect, worker.armed = False, None, False
        worker.life += 1
        worker.held.clear()
        worker.running.clear()
        wait_s = EXPIRE_S if cause == "vanished" else self.rng.uniform(0.1, LOOK_S)
        self.at(wait_s, lambda: self.lose(lost, cause))
        self.at(RESTART_S, lambda: self.start(worker))

    def start(self, worker: Worker) -> None:
        """Its next life."""
        worker.up = True

    def chance(self, worker: Worker) -> Callable[[], None]:
        """Something ends `worker` that no request is to blame for."""

        def strike() -> None:
            if worker.up:
                self.die(worker, self.rng.choice(CHANCES))
            self.at(self.rng.expovariate(1 / CHANCE_S), strike)

        return strike

    # ---- the collector

    def lose(self, lost: list[tuple[int, bool]], cause: str) -> None:
        """Journal the losses, part suspects from the others, hint."""
        for mb, armed in lost:
            vehicle = self.open[mb]
            vehicle.holder = None
            journaled = cause_of_loss(cause, solo=vehicle.solo, armed=armed)
            missing = self.missing(mb)
            for seq in missing:
                self.losses.setdefault(seq, []).append(Loss(armed, journaled))
            if vehicle.solo:
                self.travelling.discard(mb)
                continue
            rest, alone = part(missing, self.losses)
            if alone:
                del self.open[mb]
                self.urgent.extend([self.add(rest)] if rest else [])
                for seq in alone:
                    self.add([seq], solo=True)
            else:
                self.urgent.append(mb)

    def let_travel(self) -> None:
        """Hint the suspects whose turn it is; what is poison gets its verdict."""
        waiting = {mb: one.seqs[0] for mb, one in self.open.items() if one.solo and mb not in self.travelling}
        live = sum(worker.up for worker in self.workers)
        turns = free_turns(len(self.travelling), workers=live) if waiting else 0
        if not turns:
            return
        for mb in [mb for mb, seq in waiting.items() if self.judge(self.losses[seq]) is Standing.POISON]:
            self.called.add(waiting.pop(mb))
            del self.open[mb]
        turn = next_in_turn({mb: self.losses[seq] for mb, seq in waiting.items()}, turns)
        self.travelling.update(turn)
        self.urgent.extend(turn)

    def restart_collector(self) -> None:
        """A new one knows the journal, and which solos are held; it hints anew."""
        self.travelling = {mb for mb, one in self.open.items() if one.solo and one.holder is not None}

    # ---- what came of it

    def blames(self, seq: int) -> list[Loss]:
        """The losses that blame `seq`."""
        return [loss for loss in self.losses.get(seq, ()) if loss.blames]
