"""Whether and when a worker that ended is started again: pure policy, told what happened, answering with data.

The supervisor asks once a death. It knows no process, no clock and no Redis.
"""

from dataclasses import dataclass
from typing import Literal

MOST_FAILED_STARTS = 3
MOST_BARREN_DEATHS = 6
LONGEST_PAUSE_S = 60.0
SETTLED_S = 60.0
"""A life as long as this was no quick death: the pauses begin anew."""


@dataclass(frozen=True, slots=True)
class Death:
    """How one incarnation ended, as far as it matters for the next one."""

    ready: bool = True
    """It had taken work, or could have: its engine was up."""
    held: bool = False
    """It ended by its own doing, or while micro-batches were held by it."""
    results: int = 0
    """Results it had published in its life."""
    lived_s: float = 0.0
    drained: bool = False
    """It left by itself with everything handed back."""
    hopeless: bool = False
    """Its engine can never start so: no such model, too little memory."""
    blameless: bool = False
    """It left because Redis was gone: no sign of a bad start."""


@dataclass(frozen=True, slots=True)
class History:
    """What earlier deaths in the same slot amount to."""

    failed_starts: int = 0
    """In a row."""
    barren_deaths: int = 0
    """With work held and no result in between."""
    quick_deaths: int = 0
    """In a row, without a result or a settled life in between: the exponent of the pause."""
    was_ready: bool = False
    """Some life had its engine up: whatever keeps a later one from starting may pass."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the slot. `pause_s` counts only for `restart`, `why` only for `give_up`."""

    action: Literal["restart", "give_up", "retire"]
    pause_s: float = 0.0
    why: str = ""


def decide(history: History, death: Death) -> tuple[History, Decision]:
    """The slot's new history, and what to do after `death`: pauses 1, 2, 4 ... 60 s, until there is no sense in it."""
    if death.drained:
        return history, Decision("retire")
    if death.hopeless and not history.was_ready:
        return history, Decision("give_up", why="its engine can never start so")
    after = _count(history, death)
    if after.failed_starts >= MOST_FAILED_STARTS:
        return after, Decision("give_up", why=f"{after.failed_starts} failed starts in a row")
    if after.barren_deaths >= MOST_BARREN_DEATHS:
        return after, Decision("give_up", why=f"{after.barren_deaths} deaths with work held and no result between")
    pause_s = min(LONGEST_PAUSE_S, 2.0 ** (after.quick_deaths - 1))
    return after, Decision("restart", pause_s=pause_s)


def _count(history: History, death: Death) -> History:
    failed_starts, barren_deaths = history.failed_starts, history.barren_deaths
    if death.ready:
        failed_starts = 0
    elif not death.blameless:
        failed_starts += 1
    if death.results > 0:
        barren_deaths = 0
    elif death.ready and death.held:
        barren_deaths += 1
    settled = death.results > 0 or (death.ready and death.lived_s >= SETTLED_S)
    quick_deaths = 1 if settled else history.quick_deaths + 1
    return History(failed_starts, barren_deaths, quick_deaths, was_ready=history.was_ready or death.ready)
