"""What the next supervisor on a host says of workers whose supervisor is gone."""

from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from common import keys
from tests.rosters import add_elsewhere
from tests.servers import Server
from worker.certificates import Cause
from worker.node import certify_abandoned
from worker.roster import Roster

INCARNATION = "host-0-00000000"
NO_PID = 2**22 + 1


@pytest.mark.parametrize(
    ("cause", "certified", "warnings"), [(Cause.LEFT, b"left", 0), (Cause.SELF, b"self", 1), (None, b"outside", 1)]
)
def test_only_a_death_is_worth_a_warning(
    own_server: Server, tmp_path: Path, cause: Cause | None, certified: bytes, warnings: int
) -> None:
    """A server that ends with its job takes no certificate of a worker that left after it."""
    add_elsewhere(tmp_path, INCARNATION, NO_PID, cause=cause)
    client = own_server.client()
    with capture_logs() as logs:
        certify_abandoned(client, roster=Roster(redis_url=own_server.url, folder=tmp_path))
    assert cast(Any, client.hgetall(keys.DIED)) == {INCARNATION.encode(): certified}
    assert len([log for log in logs if log["event"] == "worker_died"]) == warnings
