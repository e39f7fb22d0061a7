"""What a look calls for: a table of what the janitor may see."""

from collections.abc import Mapping

import pytest

from common.claim_types import Seen, Stage
from producer.journal_reader import MicroBatchRow
from producer.remedies import NOTHING, Circumstances, Do, Remedy, remedy_for
from producer.window import Doubt, Hint, Hold, OpenMicroBatch

HINT = Hint(90.0, "q", 6)
ROW = MicroBatchRow(1, 0, "m", "normal", (0, 1, 2, 3), b"d", 100, 0.0, 0, 0)


def batch(
    *,
    got: int = 0,
    hint: Hint | None = HINT,
    hold: Hold | None = None,
    doubt: Doubt | None = None,
    quiet_until_s: float = 0.0,
) -> OpenMicroBatch:
    return OpenMicroBatch(ROW, got, hint=hint, hold=hold, doubt=doubt, quiet_until_s=quiet_until_s)


def seen(st: Stage, *, got: int = 0, token: str | None = None, beat: int = 1) -> Seen:
    return Seen(st, token or (None if st == "READY" else "t"), beat, got, False, None if st == "READY" else "w")


def now(
    *,
    now_s: float = 100.0,
    empties: int = 0,
    died: Mapping[str, str] | None = None,
    empty_queues: frozenset[str] = frozenset(),
    served: frozenset[str] = frozenset({"q"}),
    claimed_s: Mapping[tuple[str, int], float] | None = None,
    route: str = "q",
) -> Circumstances:
    return Circumstances(
        now_s=now_s,
        expire_s=20.0,
        hint_age_s=2.0,
        empties=empties,
        died=died or {},
        empty_queues=empty_queues,
        served_queues=served,
        claimed_s=claimed_s or {},
        route=lambda _model: route,
    )


EMPTY = now(empty_queues=frozenset({"q"}))


@pytest.mark.parametrize(
    ("known", "in_redis", "circumstances", "expected"),
    [
        pytest.param(batch(), None, now(), Remedy(Do.OFFER), id="lost by Redis"),
        pytest.param(batch(), seen("READY"), now(), NOTHING, id="waiting in its queue"),
        pytest.param(batch(), seen("READY"), EMPTY, Remedy(Do.HINT), id="its queue is empty"),
        pytest.param(batch(hint=Hint(99.0, "q", 6)), seen("READY"), EMPTY, NOTHING, id="hint too young to be missed"),
        pytest.param(batch(hint=None), seen("READY"), EMPTY, NOTHING, id="never hinted: it waits for its turn"),
        pytest.param(batch(quiet_until_s=101.0), seen("READY"), EMPTY, NOTHING, id="a live worker may reclaim"),
        pytest.param(batch(), seen("READY"), now(claimed_s={("q", 6): 99.9}), NOTHING, id="not yet overtaken by 10 s"),
        pytest.param(batch(), seen("READY"), now(claimed_s={("q", 6): 100.0}), Remedy(Do.HINT), id="overtaken by 10 s"),
        pytest.param(
            batch(), seen("READY"), now(claimed_s={("q", 0): 100.0}), NOTHING, id="overtaken by an urgent one only"
        ),
        pytest.param(batch(), seen("READY"), now(now_s=249.0), NOTHING, id="unclaimed for 159 s"),
        pytest.param(batch(), seen("READY"), now(now_s=250.0), Remedy(Do.HINT), id="unclaimed for 160 s"),
        pytest.param(
            batch(),
            seen("READY"),
            now(served=frozenset({"other"}), route="other"),
            Remedy(Do.HINT),
            id="nobody takes from its queue any more, somebody from another",
        ),
        pytest.param(batch(), seen("READY"), now(served=frozenset()), NOTHING, id="nobody is there"),
        pytest.param(batch(got=1), seen("READY", got=0), now(), Remedy(Do.MARK, mask=1), id="journal knows more"),
        pytest.param(batch(), seen("HELD"), now(), NOTHING, id="held, first seen"),
        pytest.param(batch(hold=Hold("t", 1, 80.1)), seen("HELD"), now(), NOTHING, id="not renewed for almost 20 s"),
        pytest.param(
            batch(hold=Hold("t", 1, 80.0)),
            seen("HELD"),
            now(),
            Remedy(Do.EXPIRE, cause="vanished"),
            id="not renewed for 20 s",
        ),
        pytest.param(batch(hold=Hold("t", 1, 80.0)), seen("HELD", beat=2), now(), NOTHING, id="renewed"),
        pytest.param(
            batch(hold=Hold("t", 1, 80.0)), seen("HELD", token="u"), now(), NOTHING, id="another's hold by now"
        ),
        pytest.param(
            batch(), seen("HELD"), now(died={"w": "self"}), Remedy(Do.EXPIRE, cause="self"), id="certified dead"
        ),
        pytest.param(
            batch(doubt=Doubt(1, 3)),
            seen("HELD", got=1),
            now(died={"w": "self"}, empties=9),
            Remedy(Do.EXPIRE, cause="self"),
            id="certified dead, and an entry is lost: the loss first",
        ),
        pytest.param(batch(), seen("HELD"), now(died={"x": "self"}), NOTHING, id="another one's certificate"),
        pytest.param(batch(), seen("FULL", got=15), now(), NOTHING, id="full, first seen"),
        pytest.param(
            batch(doubt=Doubt(15, 3)), seen("FULL", got=15), now(empties=3), NOTHING, id="the stream was not empty"
        ),
        pytest.param(
            batch(doubt=Doubt(15, 3)),
            seen("FULL", got=15),
            now(empties=4),
            Remedy(Do.REPAIR, mask=15),
            id="full, its entries are lost",
        ),
        pytest.param(
            batch(doubt=Doubt(1, 3)), seen("HELD", got=2), now(empties=9), NOTHING, id="other results than before"
        ),
        pytest.param(
            batch(doubt=Doubt(1, 3)),
            seen("HELD", got=3),
            now(empties=9),
            Remedy(Do.REPAIR, mask=1),
            id="one entry is lost, another may come",
        ),
        pytest.param(
            batch(got=3, doubt=Doubt(3, 3)), seen("HELD", got=3), now(empties=9), NOTHING, id="received meanwhile"
        ),
    ],
)
def test_remedy(known: OpenMicroBatch, in_redis: Seen | None, circumstances: Circumstances, expected: Remedy) -> None:
    assert remedy_for(known, in_redis, circumstances) == expected


def test_a_hold_is_observed_from_its_first_sight() -> None:
    known = batch()
    for second in range(20):
        assert remedy_for(known, seen("HELD"), now(now_s=100.0 + second)) == NOTHING
    assert remedy_for(known, seen("HELD"), now(now_s=120.0)).do == Do.EXPIRE
    assert remedy_for(known, seen("READY"), now(now_s=121.0)) == NOTHING
    assert known.hold is None
