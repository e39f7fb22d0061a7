"""Each part of Bakehouse under a Redis user of its own, as examples/deploy/redis/users.conf has them, secrets planted.

The jobs come out whole, no user is refused what it needs or given what it must not have, no secret is found in anything
that is left behind, and each command about a job is on record.
"""

import json
import os
import pwd
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.jobs import ROWS, check_whole, write_requests
from tests.secured import SecuredServer
from tests.secured_fleet import MODEL, SECRETS, WRONG, SecuredFleet, secured_fleet
from tests.servers import REDIS, VALKEY

pytestmark = pytest.mark.deploy

LONG = 4_000
FORBIDDEN = (
    "FLUSHALL",
    "FLUSHDB",
    "CONFIG SET maxmemory-policy allkeys-lru",
    "CONFIG GET requirepass",
    "KEYS *",
    "SHUTDOWN",
    "MONITOR",
    "ACL LIST",
    "CLIENT KILL TYPE normal",
    "CLIENT LIST",
    "SET somebody else's",
    "GET somebody",
    "EVAL return(1) 0",
    "SCRIPT FLUSH",
    "REPLICAOF NO ONE",
    "MODULE LIST",
)
"""What no part may ever do."""
OWN_FORBIDDEN = {
    "worker": (
        "DEL bakehouse:{locked}:info",
        "UNLINK bakehouse:{locked}:results",
        "XDEL bakehouse:{locked}:results 1-1",
        "XREAD STREAMS bakehouse:{locked}:results 0",
        "HSET bakehouse:jobs a b",
        "DEL bakehouse.q.oven",
        "PUBLISH elsewhere x",
    ),
    "collector": ("HSET bakehouse:worker:a state ready", "BRPOP bakehouse.q.oven 1", "PUBLISH /0.celery.pidbox x"),
    "flower": (
        "HGETALL bakehouse:{locked}:info",
        "HGETALL bakehouse:jobs",
        "LPUSH bakehouse.q.oven x",
        "BRPOP bakehouse.q.oven 1",
        "SCAN 0",
    ),
}


@pytest.fixture(scope="module", params=[REDIS, VALKEY])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredFleet]:
    """After every kind of command, good and bad, all under these users."""
    if request.param == REDIS and not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    folder = tmp_path_factory.mktemp(f"secured-{request.param}")
    server = SecuredServer(request.param, folder / "redis")
    server.start()
    try:
        with secured_fleet(server, folder) as fleet:
            _work(fleet)
        yield fleet
    finally:
        server.stop()


def _work(fleet: SecuredFleet) -> None:
    source = write_requests(fleet.folder / "in.jsonl", model=MODEL)
    fleet.produce("run", source, "-o", fleet.folder / "out.jsonl", "--job-id", "whole", "--metrics-port", "0")
    fleet.produce("rerun", "whole", "--ids", _ids(fleet.folder / "ids"))
    long = write_requests(fleet.folder / "long.jsonl", LONG, model=MODEL)
    fleet.produce("enqueue", long, "-o", fleet.folder / "long-out.jsonl", "--job-id", "steered")
    fleet.produce("pause", "steered")
    fleet.produce("status")
    fleet.produce("status", "steered", "--json")
    fleet.produce("targets")
    fleet.produce("cancel", "steered")
    fleet.produce("status", password=WRONG)
    fleet.produce("run", source, "-o", fleet.folder / "no.jsonl", "--job-id", "denied", code=2, password=WRONG)


def _ids(path: Path) -> Path:
    path.write_text("r-3\n")
    return path


def test_the_job_comes_out_whole(fleet: SecuredFleet) -> None:
    check_whole(fleet.folder / "out.jsonl", ROWS)
    kept = json.loads(fleet.said[next(who for who in fleet.said if "status steered --json" in who)])
    assert "steered" in json.dumps(kept)


def test_nobody_lacks_what_it_needs(fleet: SecuredFleet) -> None:
    """But for CLIENT SETINFO, which Redis 7.0 does not know, and the logins that were wrong."""
    lacked = [entry for entry in fleet.server.refused() if "setinfo" not in entry and " auth " not in entry]
    assert lacked == []


@pytest.mark.parametrize("user", OWN_FORBIDDEN)
def test_nobody_may_do_what_it_must_not(fleet: SecuredFleet, user: str) -> None:
    client: Any = fleet.server.client_of(user)
    for command in FORBIDDEN + OWN_FORBIDDEN[user]:
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command.split())
    fleet.server.client().acl_log_reset()


def test_nobody_gets_in_without_a_login(fleet: SecuredFleet) -> None:
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(unix_socket_path=str(fleet.server.socket)).ping()


def test_no_secret_is_anywhere(fleet: SecuredFleet) -> None:
    places = list(fleet.places())
    found = [(who, secret) for who, text in places for secret in SECRETS if secret.encode() in text]
    assert found == []
    names = " ".join(who for who, _ in places)
    for looked in ("worker.log", "flower.log", "producer.log", "journal.sqlite", "cmdline", "Flower /", "metrics of"):
        assert looked in names, "what was searched"
    assert any(b"bakehouse_" in text for who, text in places if who.startswith("metrics of"))
    assert any(b"wrong" in text or b"refuses the login" in text for who, text in places if "denied" in who)


def test_each_command_is_on_record(fleet: SecuredFleet) -> None:
    by = f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"
    for job, verbs in {"whole": ["run", "rerun"], "steered": ["enqueue", "pause", "cancel"]}.items():
        lines = [json.loads(line) for line in (fleet.jobs / job / "logs" / "audit.log").read_text().splitlines()]
        assert [line["verb"] for line in lines] == verbs
        assert {(line["event"], line["job"], line["by"], line["uid"]) for line in lines} == {
            ("command_given", job, by, os.getuid())
        }
    heard = (fleet.jobs / "steered" / "logs" / "producer.log").read_text()
    assert '"verb": "cancel"' in heard
    assert f'"by": "{by}"' in heard


def test_files_are_the_owners_alone(fleet: SecuredFleet) -> None:
    for path in (fleet.jobs / "whole", *(fleet.jobs / "whole").rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
