"""Passwords and tokens in files of their own: what is read, and which files are refused."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from common.broker import make_client, redis_url
from common.errors import RefusedError
from common.secret_file import read_secret, shows_password, with_password
from common.settings import load
from producer.local_worker import worker_environment
from worker.cli_options import FlowerOptions
from worker.engines.hub_token import with_token_file


def secret(folder: Path, text: str = "pa:s/s@w?d%\n", mode: int = 0o600) -> Path:
    """A file with `text` in it."""
    path = folder / "secret"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o440])
def test_owner_and_group_may_read_it(tmp_path: Path, mode: int) -> None:
    assert read_secret(secret(tmp_path, mode=mode), what="token") == "pa:s/s@w?d%"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602])
def test_one_that_is_open_to_everybody_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(RefusedError, match=r"token is open to everybody .*chmod 600") as refused:
        read_secret(secret(tmp_path, mode=mode), what="token")
    assert "pa:s" not in str(refused.value)


@pytest.mark.parametrize(("text", "why"), [("", "not one line"), ("\n", "not one line"), ("a\nb", "not one line")])
def test_what_is_no_secret_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        read_secret(secret(tmp_path, text), what="token")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"No such file.*absent"):
        read_secret(tmp_path / "absent", what="token")


@pytest.mark.parametrize("url", ["redis://redis:6379/0", "rediss://cook@redis/1", "unix:///run/redis.sock?db=2"])
def test_the_url_gets_the_password(tmp_path: Path, url: str) -> None:
    whole = redis_url(load(redis_url=url, redis_password_file=secret(tmp_path)))
    client = redis.Redis.from_url(whole).connection_pool.connection_kwargs
    assert client["password"] == "pa:s/s@w?d%"
    assert client.get("username") == urlsplit(url).username
    bare = redis.Redis.from_url(url).connection_pool.connection_kwargs
    where = ("host", "port", "db", "path")
    assert [client.get(name) for name in where] == [bare.get(name) for name in where]


def test_two_passwords_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="two passwords"):
        with_password("redis://:one@redis/0", secret(tmp_path))


def test_an_embedded_server_has_none(tmp_path: Path) -> None:
    settings = load(redis_password_file=secret(tmp_path))
    environment = worker_environment(settings, url="unix:///s", log_file=tmp_path / "l", base={})
    assert "BAKEHOUSE_REDIS_PASSWORD_FILE" not in environment


def test_the_login_of_flower_may_stand_in_a_file(tmp_path: Path) -> None:
    path = secret(tmp_path, "cook:pa55")
    assert FlowerOptions(basic_auth_file=path).login() == "cook:pa55"
    assert FlowerOptions(basic_auth="other:one", basic_auth_file=path).login() == "other:one"
    assert FlowerOptions().login() is None


@pytest.mark.parametrize("variable", ["HF_TOKEN_FILE", "HF_TOKEN_PATH"])
def test_the_hubs_client_reads_the_token_we_only_check(tmp_path: Path, variable: str) -> None:
    path = secret(tmp_path, "hf_token")
    assert with_token_file({variable: str(path), "HOME": "/"}) == {"HF_TOKEN_PATH": str(path), "HOME": "/"}
    path.write_text("")
    assert with_token_file({variable: str(path)}), "only gated and private models need one"
    path.chmod(0o604)
    with pytest.raises(RefusedError, match=r"token of the model hub is open to everybody .*mode 0604.*chmod 600"):
        with_token_file({variable: str(path)})
    with pytest.raises(RefusedError, match="No such file"):
        with_token_file({variable: str(tmp_path / "absent")})


def test_nothing_is_asked_of_who_has_no_token_file() -> None:
    assert with_token_file({"HF_TOKEN": "hf_token"}) == {"HF_TOKEN": "hf_token"}


@pytest.mark.parametrize(
    ("url", "shows"),
    [
        ("redis://:pw@host/0", True),
        ("rediss://cook:pw@host:1/0", True),
        ("redis://cook@host/0", False),
        ("redis://host:6379/0", False),
        ("unix:///run/redis.sock", False),
        (None, False),
    ],
)
def test_a_password_on_a_command_line_is_noticed(url: str | None, shows: bool) -> None:
    assert shows_password(url) == shows


@pytest.mark.parametrize("url", ["redis://:half/5ecret@host/0", "redis://:ha:lf5ecret/@host", "redis://[5ecret@host"])
def test_a_url_that_is_none_is_not_quoted(url: str) -> None:
    with pytest.raises(RefusedError, match="no address of a Redis server") as refused:
        make_client(url)
    assert "5ecret" not in str(refused.value)
