"""What the next supervisor on a host says of workers whose supervisor is gone."""

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from common import keys
from tests.servers import Server
from worker.certificates import Cause
from worker.node import certify_abandoned
from worker.roster import Roster

ADDER = "import pathlib, sys; from worker.roster import Roster; from worker.certificates import Cause;"
ADDER += "roster = Roster(redis_url='redis://gone', folder=pathlib.Path(sys.argv[1]));"
ADDER += "roster.add('host-0-00000000', 2**22 + 1);"
ADDER += "roster.conclude('host-0-00000000', Cause(sys.argv[2])) if sys.argv[2:] else None"


@pytest.mark.parametrize(
    ("cause", "certified", "warnings"), [(Cause.LEFT, b"left", 0), (Cause.SELF, b"self", 1), (None, b"outside", 1)]
)
def test_only_a_death_is_worth_a_warning(
    own_server: Server, tmp_path: Path, cause: Cause | None, certified: bytes, warnings: int
) -> None:
    """A server that ends with its job takes no certificate of a worker that left after it."""
    subprocess.run([sys.executable, "-c", ADDER, str(tmp_path), *([cause.value] if cause else [])], check=True)
    client = own_server.client()
    with capture_logs() as logs:
        certify_abandoned(client, roster=Roster(redis_url=own_server.url, folder=tmp_path))
    assert cast(Any, client.hgetall(keys.DIED)) == {b"host-0-00000000": certified}
    assert len([log for log in logs if log["event"] == "worker_died"]) == warnings
