"""Hints on a real server: what a Celery worker finds in which queue."""

import base64
import json
from typing import Any, cast

import pytest
import redis

from common.broker import TASK_NAME, make_app
from common.settings import Settings
from producer.hints import Hints
from producer.journal_reader import MicroBatchRow
from producer.window import OpenMicroBatch
from tests.servers import Server

QUEUE = "bakehouse.q.m"


def batch(mb: int, *, got: int = 0) -> OpenMicroBatch:
    return OpenMicroBatch(MicroBatchRow(mb, 0, "m", "normal", (0, 1, 2), b"d", 10, 0.0, 0, 0), got)


@pytest.fixture
def hints(valkey: redis.Redis, valkey_server: Server) -> Hints:
    """Hints of job j at normal priority."""
    return Hints(Settings(redis_url=valkey_server.url), job="j", priority="normal")


def waiting(valkey: redis.Redis, key: str) -> list[dict[str, Any]]:
    """The messages in one list, oldest first."""
    return [json.loads(message) for message in reversed(cast(Any, valkey.lrange(key, 0, -1)))]


def test_a_hint_names_work_and_nothing_of_a_prompt(hints: Hints, valkey: redis.Redis) -> None:
    first, second = batch(17), batch(18, got=0b1)
    hints.send([first, second], route=lambda model: f"bakehouse.q.{model}", now_s=5.0, reason="new")
    messages = waiting(valkey, QUEUE + "\x06\x166")
    assert [message["headers"]["argsrepr"] for message in messages] == ["job=j mb=17 n=3", "job=j mb=18 n=2"]
    assert {message["headers"]["task"] for message in messages} == {TASK_NAME}
    assert json.loads(base64.b64decode(messages[0]["body"]))[0] == [1, "j", 17, 3]
    assert first.hint == (5.0, QUEUE, 6)
    assert valkey.keys("_kombu.binding*") == []


def test_a_hint_is_what_celery_would_send(hints: Hints, valkey: redis.Redis, valkey_server: Server) -> None:
    hints.send([batch(17)], route=lambda _: QUEUE, now_s=5.0, reason="new")
    (ours,) = waiting(valkey, QUEUE + "\x06\x166")
    headers, properties = ours["headers"], ours["properties"]
    app = make_app(Settings(redis_url=valkey_server.url))
    celerys = app.amqp.as_task_v2(
        headers["id"], TASK_NAME, args=(1, "j", 17, 3), argsrepr="job=j mb=17 n=3", kwargsrepr="{}"
    )
    assert headers == {**celerys.headers, "origin": headers["origin"]}
    assert json.loads(base64.b64decode(ours["body"])) == json.loads(json.dumps(celerys.body))
    assert {name: properties[name] for name in celerys.properties} == celerys.properties
    assert (ours["content-type"], ours["content-encoding"], properties["priority"]) == ("application/json", "utf-8", 6)


def test_an_urgent_hint_goes_before_all_others(hints: Hints, valkey: redis.Redis) -> None:
    repaired = batch(1)
    repaired.repairs = 1
    hints.send([repaired], route=lambda _: QUEUE, now_s=5.0, reason="repair")
    assert len(waiting(valkey, QUEUE)) == 1
    assert hints.empty_queues(valkey, [QUEUE, "bakehouse.q.n"]) == {"bakehouse.q.n"}
    valkey.delete(QUEUE)
    assert hints.empty_queues(valkey, [QUEUE]) == {QUEUE}
    assert hints.empty_queues(valkey, []) == frozenset()


def test_a_repeated_hint_of_a_redelivery_does_too(hints: Hints, valkey: redis.Redis) -> None:
    lost = batch(1)
    lost.deliveries = 1
    hints.send([lost, batch(2)], route=lambda _: QUEUE, now_s=5.0, reason="unclaimed")
    assert [message["headers"]["argsrepr"] for message in waiting(valkey, QUEUE)] == ["job=j mb=1 n=3"]
    assert len(waiting(valkey, QUEUE + "\x06\x166")) == 1


def test_a_celery_consumer_understands_it(hints: Hints, valkey: redis.Redis, valkey_server: Server) -> None:
    hints.send([batch(3)], route=lambda _: QUEUE, now_s=5.0, reason="new")
    app = make_app(Settings(redis_url=valkey_server.url), queues=(QUEUE,))
    bodies: list[Any] = []

    def take(body: Any, message: Any) -> None:
        bodies.append(body)
        message.ack()

    with app.connection_for_read() as connection, app.amqp.TaskConsumer(connection) as consumer:
        consumer.register_callback(take)
        connection.drain_events(timeout=5)
    assert bodies[0][0] == [1, "j", 3, 3]


def test_a_worker_takes_the_most_urgent_first_and_else_from_its_queues_in_turn(
    hints: Hints, valkey: redis.Redis, valkey_server: Server
) -> None:
    """No queue of one priority stands before another, whoever fills it."""
    build = QUEUE + "@d"
    hints.send([batch(mb) for mb in range(1, 6)], route=lambda _: QUEUE, now_s=5.0, reason="new")
    hints.send([batch(mb) for mb in range(11, 16)], route=lambda _: build, now_s=5.0, reason="new")
    hints.leave([batch(31)], valkey, route=lambda _: QUEUE, now_s=5.0)
    settings = Settings(redis_url=valkey_server.url)
    app = make_app(settings, queues=(QUEUE, build))
    high = Hints(settings, job="j", priority="high")
    high.send([batch(21)], route=lambda _: build, now_s=5.0, reason="new")
    taken: list[int] = []

    def take(body: Any, message: Any) -> None:
        taken.append(body[0][2])
        message.ack()

    with app.connection_for_read() as connection, app.amqp.TaskConsumer(connection, prefetch_count=1) as consumer:
        consumer.register_callback(take)
        while len(taken) < 12:
            connection.drain_events(timeout=5)
    assert (taken[0], taken[-1]) == (21, 31)
    assert [sorted(mb % 10 for mb in taken[at : at + 2]) for at in range(1, 11, 2)] == [[n, n] for n in range(1, 6)]


def test_an_unreachable_server_is_a_redis_error_and_a_cut_connection_is_opened_again(
    hints: Hints, valkey: redis.Redis, valkey_server: Server
) -> None:
    unreachable = Hints(Settings(redis_url="unix:///nowhere/redis.sock"), job="j", priority="high")
    lost = batch(1)
    with pytest.raises(redis.RedisError):
        unreachable.send([lost], route=lambda _: QUEUE, now_s=5.0, reason="new")
    assert lost.hint is None
    hints.send([batch(1)], route=lambda _: QUEUE, now_s=5.0, reason="new")
    valkey.client_kill_filter(_type="normal", skipme=True)
    hints.send([batch(2)], route=lambda _: QUEUE, now_s=6.0, reason="new")
    assert len(waiting(valkey, QUEUE + "\x06\x166")) == 2
