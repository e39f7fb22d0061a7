"""A server that asks each part of Bakehouse for its own user, as examples/deploy/redis/users.conf says."""

import hashlib
import re
from pathlib import Path

import redis

from common.broker import make_client
from tests.processes import ROOT
from tests.servers import Server

USERS = ROOT / "examples" / "deploy" / "redis" / "users.conf"
PASSWORDS = {"worker": "5ecret-of-w0rkers", "collector": "5ecret-of-c0llectors", "flower": "5ecret-of-fl0wer"}
ADMIN = "5ecret-of-the-tests"


class SecuredServer(Server):
    """Its users are those of the example, and one for the test."""

    def __init__(self, kind: str, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "users.conf"
        path.write_text(f"{with_passwords(USERS.read_text())}\nuser admin on >{ADMIN} ~* &* +@all\n")
        super().__init__(kind, directory, "--include", str(path))
        self.url = self.url_of("admin", ADMIN)

    def url_of(self, user: str, password: str | None = None) -> str:
        """Where `user` finds it; without a password to be read from a file."""
        return f"unix://{user}{'' if password is None else ':' + password}@{self.socket}"

    def client_of(self, user: str) -> redis.Redis:
        """A client of one of the example's users."""
        return make_client(self.url_of(user, PASSWORDS[user]))

    def refused(self) -> list[str]:
        """What the server has refused to its users so far, the newest first: who, why, what."""
        entries = self.client().acl_log()
        return [f"{entry['username']} {entry['reason']} {entry['object']}" for entry in entries]


def with_passwords(users: str) -> str:
    """The example with our passwords in it."""

    def put(found: re.Match[str]) -> str:
        return f"{found[1]}#{hashlib.sha256(PASSWORDS[found[2]].encode()).hexdigest()}"

    text, replaced = re.subn(r"^(user (\w+) on )#0{64}", put, users, flags=re.M)
    assert replaced == len(PASSWORDS)
    return text
