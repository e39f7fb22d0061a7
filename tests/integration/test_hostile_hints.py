"""What somebody may put into a queue that is no hint: each costs a worker one log line, and a job goes on beside it."""

import base64
import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from common import keys
from common.broker import TASK_NAME, make_connection, make_queue
from common.settings import load
from common.wire import WIRE_VERSION
from tests.jobs import check_whole, write_requests
from tests.processes import live_workers, run_producer, started_worker
from tests.servers import VALKEY, Server
from tests.waiting import wait_until
from worker.hint_door import find_fault

MODEL = "oven"
QUEUE = keys.queue(MODEL)
MARK = "planted-by-nobody"
"""In every hostile message; no log may quote it."""


def sound() -> dict[str, Any]:
    """A hint as a producer's connection would write it."""
    body = [[WIRE_VERSION, "job", 1, 1], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    return {
        "body": encoded(body),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": TASK_NAME, "id": MARK, "retries": 0, "eta": None},
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": MARK,
            "delivery_info": {"exchange": "", "routing_key": QUEUE},
            "priority": 6,
        },
    }


def encoded(body: object) -> str:
    """`body` as it stands in a message."""
    return base64.b64encode(json.dumps(body).encode()).decode()


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A sound hint after `change`."""
    message = copy.deepcopy(sound())
    change(message)
    return json.dumps(message).encode()


def with_arguments(*arguments: object, named: object = None, more: object = None) -> bytes:
    """A hint with these arguments."""
    body = [list(arguments), named or {}, more or {}]
    return changed(lambda message: message.update(body=encoded(body)))


HOSTILE: dict[str, bytes] = {
    "no JSON": MARK.encode(),
    "no text": b"\xff\xfe\x00" + MARK.encode(),
    "deep JSON": b"[" * 100_000,
    "a number": b"7",
    "null": b"null",
    "a type of kombu's": b'{"__type__": "datetime", "__value__": "planted-by-nobody"}',
    "no properties": changed(lambda message: message.pop("properties")),
    "no headers": changed(lambda message: message.pop("headers")),
    "no tag": changed(lambda message: message["properties"].pop("delivery_tag")),
    "another task": changed(lambda message: message["headers"].update(task=f"os.{MARK}")),
    "pickle": changed(
        lambda message: message.update(
            {"content-type": "application/x-python-serialize", "content-encoding": "binary"},
            body=base64.b64encode(pickle.dumps([[MARK], {}, {}])).decode(),
        )
    ),
    "compressed": changed(lambda message: message["headers"].update(compression="application/x-gzip")),
    "later": changed(lambda message: message["headers"].update(eta="2999-01-01T00:00:00+00:00")),
    "no base64": changed(lambda message: message.update(body=MARK)),
    "a body that is no list": changed(lambda message: message.update(body=encoded({"a": MARK}))),
    "huge": with_arguments(WIRE_VERSION, "j" * 20_000_000, 1, 1),
    "path in the job id": with_arguments(WIRE_VERSION, f"../../{MARK}", 1, 1),
    "key in the job id": with_arguments(WIRE_VERSION, f"a}}:info:{{{MARK}", 1, 1),
    "no number": with_arguments(WIRE_VERSION, "job", MARK, 1),
    "a negative number": with_arguments(WIRE_VERSION, "job", -1, 1),
    "a large number": with_arguments(WIRE_VERSION, "job", 10**40, 1),
    "no version": with_arguments(["1"], "job", 1, 1),
    "too few": with_arguments(WIRE_VERSION),
    "too many": with_arguments(WIRE_VERSION, "job", 1, 1, MARK),
    "named": with_arguments(WIRE_VERSION, "job", 1, 1, named={"job": MARK}),
    "what follows": with_arguments(WIRE_VERSION, "job", 1, 1, more={"callbacks": [{"task": MARK}]}),
}


def plant(client: redis.Redis) -> None:
    """Keys that look like ours and are not: nobody may stumble over them."""
    client.hset(keys.JOBS, mapping={f"../../{MARK}": "x", b"\xff": b"\xff", "strange": "no JSON", "list": "[]"})
    client.set(keys.WORKER_PREFIX + "string", MARK)
    client.hset(keys.WORKER_PREFIX + "hash", mapping={"models": "[1", "state": b"\xff"})
    client.hset(keys.WORKER_PREFIX + "other", mapping={"metrics": b"\xff:1"})
    client.hset(keys.info("strange"), mapping={b"\xff": b"\xff", "state": "nowhere", "seen": "x"})
    client.hset(keys.DIED, mapping={b"\xff": b"\xff", MARK: "by magic"})


def test_a_hint_as_it_is_sent_has_no_fault(own_server: Server) -> None:
    assert find_fault(sound()) is None
    with make_connection(load(redis_url=own_server.url)) as connection:
        producer = connection.Producer()
        producer.publish(
            [[WIRE_VERSION, "job", 1, 1], {}, {}], routing_key=QUEUE, headers=sound()["headers"], serializer="json"
        )
        del producer
    (sent,) = own_server.client().lrange(QUEUE, 0, -1)
    assert find_fault(json.loads(sent)) is None
    assert make_queue(QUEUE).name == QUEUE


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_fault_is_found(kind: str) -> None:
    try:
        message = json.loads(HOSTILE[kind])
    except (ValueError, RecursionError):
        message = None
    fault = find_fault(message)
    assert fault
    assert MARK not in fault


def test_each_costs_a_log_line(tmp_path: Path) -> None:
    server = Server(VALKEY, tmp_path / "data").start()
    log, output = tmp_path / "worker.log", tmp_path / "out.jsonl"
    engine = ("--engine", "sim", "--model", MODEL, "--sim-seconds", "0.001")
    try:
        with started_worker(server, *engine, log=log):
            client, before = server.client(), live_workers(server)
            for message in HOSTILE.values():
                client.lpush(QUEUE + "\x06\x163", message)
            plant(client)
            client.publish("/0.celery.pidbox", b"{}")
            client.publish("/0.celery.pidbox", changed(lambda message: message.pop("body")))
            source = write_requests(tmp_path / "in.jsonl", model=MODEL)
            where = ("--redis-url", server.url, "--jobs", tmp_path / "jobs")
            ended = run_producer("run", source, "-o", output, *where)
            assert ended.returncode == 0, ended.stderr
            for verb in ("status", "targets"):
                shown = run_producer(verb, "--redis-url", server.url, "--jobs", tmp_path / "no-jobs")
                assert shown.returncode == 0, shown.stderr
            wait_until(
                lambda: log.read_text().count("hint_refused") >= len(HOSTILE), timeout_s=30, description="all refused"
            )
            lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
            client.delete(keys.WORKER_PREFIX + "string")
            assert live_workers(server) == before, "the same worker lives"
        check_whole(output)
        refused = [line for line in lines if line["event"] == "hint_refused" and line["queue"] == QUEUE]
        assert len(refused) == len(HOSTILE)
        assert {line["level"] for line in lines} <= {"info", "warning"}
        assert MARK not in log.read_text()
    finally:
        server.stop()
