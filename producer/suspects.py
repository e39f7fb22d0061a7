"""Who is to blame for a worker's death: pure policy over journaled losses, between a lost hold and the next claim.

Which requests travel on together, which alone, which of those now, and which are poison. Told what the journal has;
knows no Redis, no clock and no file.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

BLAMING = frozenset({"self", "outside"})
"""Causes of a certificate of death that blame what ran; an ordered leave, a vanished host, a freeze blame nobody."""
FELL = "self"
"""The process fell by its own doing, or its work's."""
WAITED = "waited"
"""Cause of the loss of a suspect whose run had not begun: it cannot have killed anything."""
SUSPECT_BLAMES = 2
"""After so many blames a request travels alone."""
POISON_DEATHS = 3
"""So many certified deaths while it ran alone prove it, whatever their cause; one is enough where the process fell."""
WORKERS_A_SUSPECT = 8
"""A suspect has a worker for itself: at most one worker in so many, and always one."""


class Loss(NamedTuple):
    """One loss of a hold, with the request unfinished in it. `armed`: it ran alone, and its run had begun."""

    armed: bool
    cause: str

    @property
    def blames(self) -> bool:
        """Whether a process is known to have died under it."""
        return self.cause in BLAMING


class Standing(Enum):
    """What is thought of a request."""

    INNOCENT = "innocent"
    SUSPECT = "suspect"
    """It travels alone."""
    POISON = "poison"
    """It is proved to kill its process, and never runs again."""


def judge(losses: Iterable[Loss]) -> Standing:
    """What `losses`, all of one request, amount to."""
    blamed = [loss for loss in losses if loss.blames]
    armed = [loss for loss in blamed if loss.armed]
    if len(armed) >= POISON_DEATHS or any(loss.cause == FELL for loss in armed):
        return Standing.POISON
    return Standing.SUSPECT if len(blamed) >= SUSPECT_BLAMES else Standing.INNOCENT


def cause_of_loss(cause: str, *, solo: bool, armed: bool) -> str:
    """The cause to be journaled for a hold that ended by `cause`."""
    return WAITED if solo and not armed and cause in BLAMING else cause


def part(seqs: Sequence[int], losses: Mapping[int, Sequence[Loss]]) -> tuple[list[int], list[int]]:
    """`seqs` of one lost micro-batch as those that travel on together, and those that travel alone from now on."""
    innocent = {seq for seq in seqs if judge(losses.get(seq, ())) is Standing.INNOCENT}
    return [seq for seq in seqs if seq in innocent], [seq for seq in seqs if seq not in innocent]


def free_turns(travelling: int, *, workers: int) -> int:
    """How many more suspects may travel beside `travelling` on so many live `workers`."""
    return max(0, max(1, workers // WORKERS_A_SUSPECT) - travelling)


def next_in_turn(waiting: Mapping[int, Sequence[Loss]], turns: int) -> list[int]:
    """Which `turns` of the waiting solos (number -> losses of their request) travel now.

    Those that killed least while alone go first: innocents come through between two deaths, and show that a worker that
    dies does work.
    """
    order = sorted(waiting, key=lambda mb: (sum(loss.armed and loss.blames for loss in waiting[mb]), mb))
    return order[:turns]


def explain(losses: Iterable[Loss]) -> str:
    """Why a request is poison, in words for its result."""
    blamed = [loss for loss in losses if loss.blames]
    causes = Counter(loss.cause for loss in blamed)
    alone = sum(loss.armed for loss in blamed)
    fell, ended = causes.pop(FELL, 0), sum(causes.values())
    return (
        f"{len(blamed)} worker processes died while they ran this request, {alone} of them with nothing else in the"
        f" engine (fell by themselves: {fell}, ended from outside: {ended}); it is not run again"
    )
