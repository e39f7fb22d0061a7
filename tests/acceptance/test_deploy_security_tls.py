"""TLS to Redis, by an authority of the fleet's own: worker, producer and Flower all check whom they talk to."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from common.broker import check_server, make_client, make_connection
from common.errors import RefusedError
from common.settings import load
from tests.flower_pages import Pages
from tests.jobs import check_whole, write_requests
from tests.processes import environment, live_workers, producer_command, started, worker_command
from tests.prometheus_server import free_port
from tests.servers import REDIS, Server
from tests.waiting import wait_until

pytestmark = pytest.mark.deploy

MODEL = "oven"
PASSWORD = "5ecret-behind-tls"
LOGIN = "cook:oven"


class TlsServer(Server):
    """Debian's Redis, over TLS alone; its certificate is for the names given, its clients show one of their own."""

    def __init__(self, directory: Path, ca: trustme.CA, *names: str) -> None:
        self.port = free_port()
        self.directory = directory
        directory.mkdir(parents=True)
        ca.cert_pem.write_to_path(directory / "ca.pem")
        for name, issued in (("server", ca.issue_cert(*names)), ("client", ca.issue_cert("client.test"))):
            issued.private_key_pem.write_to_path(directory / f"{name}.key")
            issued.cert_chain_pems[0].write_to_path(directory / f"{name}.pem")
        files = {"ca-cert": "ca.pem", "cert": "server.pem", "key": "server.key"}
        options = [part for name, file in files.items() for part in (f"--tls-{name}-file", str(directory / file))]
        super().__init__(REDIS, directory, "--tls-port", str(self.port), *options, "--requirepass", PASSWORD)
        self.url = self.url_with(ca=directory / "ca.pem", password=PASSWORD)

    def url_with(self, *, ca: Path, host: str = "localhost", password: str = "") -> str:
        """Its address for a client that trusts `ca`."""
        login = f":{password}@" if password else ""
        client = f"ssl_certfile={self.directory}/client.pem&ssl_keyfile={self.directory}/client.key"
        return f"rediss://{login}{host}:{self.port}/0?ssl_ca_certs={ca}&{client}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """One whose certificate names `localhost` alone, and not 127.0.0.1."""
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    server = TlsServer(tmp_path_factory.mktemp("tls") / "data", trustme.CA(), "localhost")
    server.start()
    yield server
    server.stop()


def test_a_job_runs_and_flower_shows_it(server: TlsServer, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    where = {
        "BAKEHOUSE_REDIS_URL": server.url_with(ca=server.directory / "ca.pem"),
        "BAKEHOUSE_REDIS_PASSWORD_FILE": str(password),
    }
    pages = Pages(tmp_path, port := free_port())
    worker = worker_command("start", "--engine", "sim", "--model", MODEL)
    flower = worker_command("flower", "--port", port, "--basic-auth", LOGIN)
    source, output = write_requests(tmp_path / "in.jsonl", model=MODEL), tmp_path / "out.jsonl"
    with started(worker, log=tmp_path / "worker.log", **where), started(flower, log=tmp_path / "f.log", **where):
        wait_until(lambda: live_workers(server), timeout_s=120, description="the worker is ready")
        wait_until(lambda: pages.status("/") == 200, timeout_s=60, description="Flower answers")
        run = producer_command("run", source, "-o", output, "--jobs", tmp_path / "jobs")
        ended = subprocess.run(run, env=environment(**where), capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr
        wait_until(
            lambda: pages.get("/api/workers?refresh=1") and MODEL in pages.get("/broker"),
            timeout_s=60,
            description="Flower sees the worker, and its queues, over TLS too",
        )
    check_whole(output)


def test_the_wrong_authority_is_refused_by_every_command(server: TlsServer, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    where = {"BAKEHOUSE_REDIS_URL": server.url_with(ca=other, password=PASSWORD)}
    source = write_requests(tmp_path / "in.jsonl", model=MODEL)
    commands = (
        worker_command("start", "--engine", "sim", "--model", MODEL),
        producer_command("run", source, "-o", tmp_path / "out.jsonl", "--jobs", tmp_path / "jobs"),
    )
    for command in commands:
        ended = subprocess.run(
            command, env=environment(**where), capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 2, ended.stderr
        assert "the certificate of Redis is not trusted" in ended.stderr
        assert "ssl_ca_certs=FILE" in ended.stderr
        assert PASSWORD not in ended.stderr


def test_another_name_is_refused(server: TlsServer) -> None:
    url = server.url_with(ca=server.directory / "ca.pem", host="127.0.0.1", password=PASSWORD)
    with pytest.raises(RefusedError, match=r"not trusted: .*(IP address|Hostname) mismatch"):
        check_server(make_client(url), url=url)


def test_celery_checks_as_much(server: TlsServer, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    for url in (server.url_with(ca=other, password=PASSWORD), server.url.replace("localhost", "127.0.0.1")):
        with make_connection(load(redis_url=url)) as connection, pytest.raises((redis.ConnectionError, ssl.SSLError)):
            connection.channel().client.ping()
    with make_connection(load(redis_url=server.url)) as connection:
        assert connection.channel().client.ping()


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("ssl_cert_reqs=none", "would take any server for this one"),
        ("ssl_check_hostname=false", "would take any server for this one"),
        ("ssl_ca_certs=/absent.pem", "ssl_ca_certs cannot be read"),
        ("ssl_ca_cert=/etc/ssl/cert.pem", "no such option of TLS"),
    ],
)
def test_less_than_a_check_is_refused(option: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        make_client(f"rediss://:pw@host:6379/0?{option}")


def test_the_machines_own_authorities_are_the_default() -> None:
    client = make_client("rediss://host:6379/0")
    connection: Any = client.connection_pool.make_connection()
    assert connection.cert_reqs == ssl.CERT_REQUIRED
    assert connection.check_hostname
