"""The two doors to Redis: the Celery app, which carries hints, and the plain client, for everything that counts.

On Redis, Celery alone loses and repeats messages (docs/queue-protocol.md), so a message is only a hint: "micro-batch n
of job j is ready". Nothing rests on its arrival, and no result comes back this way.
"""

import time
from typing import TYPE_CHECKING, Any

import redis
from kombu import Connection, Exchange, Queue
from redis.backoff import NoBackoff
from redis.retry import Retry

from common.errors import RefusedError, StoppedError
from common.log import redact
from common.secret_file import with_password
from common.sentinel import SCHEME, celery_sentinel_url, make_sentinel_client, parse
from common.settings import DEFAULT_REDIS_URL, Settings
from common.tls import tls_options, untrusted, without_tls_options

if TYPE_CHECKING:
    from celery import Celery

TASK_NAME = "bakehouse.run_micro_batch"
REDELIVERY_PRIORITY = 0
PRIORITIES = {"high": 3, "normal": 6, "low": 9}
"""kombu serves 0 first; redeliveries and suspects go at 0, or at the tail they would wait behind the whole window."""
LEFT_PRIORITIES = {"high": 4, "normal": 7, "low": 9}
"""Of what a job has in Redis while nobody feeds it, the last that kombu knows: it must keep no other job waiting."""
PRIORITY_STEPS = tuple(sorted({REDELIVERY_PRIORITY, *PRIORITIES.values(), *LEFT_PRIORITIES.values()}))
SEPARATOR = "\x06\x16"
"""kombu's, between a queue's name and a priority."""
OLDEST_REDIS = (7, 0)
ASKED_AGAIN = 2
ASK_PAUSE_S = 0.2
"""A command does not end because one connection was lost as it started."""


def redis_url(settings: Settings) -> str:
    """The server that `settings` name, else the one on this machine; its password from a file where they name one.

    Raises `RefusedError` for a file that cannot be read, or that everybody can.
    """
    url = settings.redis_url or DEFAULT_REDIS_URL
    return url if settings.redis_password_file is None else with_password(url, settings.redis_password_file)


def make_client(url: str, *, socket_timeout_s: float = 10.0) -> redis.Redis:
    """A plain client of the server at `url` (redis, rediss or unix); connects at its first call.

    A call is tried once: what to do about a lost reply is decided where the call is made. Raises `RefusedError` for
    what is no such address.
    """
    try:
        tls_options(url)
        make = make_sentinel_client if url.startswith(SCHEME) else redis.Redis.from_url
        client: redis.Redis = make(
            url,
            socket_timeout=socket_timeout_s,
            socket_connect_timeout=socket_timeout_s,
            **({} if url.startswith("unix:") else {"socket_keepalive": True}),
            retry=Retry(NoBackoff(), 0),
        )
        client.connection_pool.make_connection()
    except (ValueError, TypeError) as error:
        do = (
            "redis://, rediss:// or unix://, as in redis://user:password@host:6379/0, or sentinel://host,host/NAME;"
            " in a password / is %2F, @ is %40"
        )
        # never the error's own text: it quotes what it took for the port, and that may be half a password
        raise RefusedError("no address of a Redis server", where=redact(url), do=do) from error
    return client


def check_server(client: redis.Redis, *, url: str) -> str:
    """Refuse a server on which work could be lost; returns `redis 7.0.15` or `valkey 9.1.2`.

    Raises `StoppedError` when it cannot be reached, `RefusedError` for a wrong password, a certificate that is not
    trusted, a user who may not ask, an old version or an evicting memory policy.
    """
    where = redact(url)
    try:
        facts, policy = _ask(client)
    except redis.AuthenticationError as error:
        raise RefusedError(f"Redis refuses the login: {error}", where=where, do="check user and password") from error
    except redis.exceptions.NoPermissionError as error:
        do = "give it the commands in examples/deploy/redis/users.conf"
        raise RefusedError(f"the user of Redis may not do what is needed: {error}", where=where, do=do) from error
    except redis.ResponseError as error:
        raise RefusedError(
            f"Redis refuses: {error}", where=where, do="Redis 7.0 or newer, or Valkey, and a user who may use it"
        ) from error
    except (redis.RedisError, OSError) as error:
        if (refusal := untrusted(error)) is not None:
            do = "name the authority that signed it: rediss://HOST:6379/0?ssl_ca_certs=FILE"
            reason = f"the certificate of Redis is not trusted: {refusal.verify_message}"
            raise RefusedError(reason, where=where, do=do) from error
        raise StoppedError(f"Redis cannot be reached: {error}", where=where, do="start it, or check the URL") from error
    if "valkey_version" in facts:
        version = f"valkey {facts['valkey_version']}"
    else:
        version = f"redis {facts['redis_version']}"
        if tuple(int(part) for part in str(facts["redis_version"]).split(".")[:2]) < OLDEST_REDIS:
            raise RefusedError(f"{version} is too old", where=where, do="Redis 7.0 or newer, or Valkey")
    if policy != "noeviction":
        raise RefusedError(
            f"maxmemory-policy is {policy}: it would evict work",
            where=where,
            do="set maxmemory-policy to noeviction",
        )
    return version


def _ask(client: redis.Redis) -> tuple[dict[str, Any], str]:
    """Facts about the server, and its memory policy; a lost connection is tried again."""
    for _ in range(ASKED_AGAIN):
        try:
            return _ask_once(client)
        except redis.AuthenticationError:
            raise
        except redis.ConnectionError:
            time.sleep(ASK_PAUSE_S)
    return _ask_once(client)


def _ask_once(client: redis.Redis) -> tuple[dict[str, Any], str]:
    return client.info("server"), client.info("memory").get("maxmemory_policy", "noeviction")


def refuses_writes(error: redis.RedisError) -> bool:
    """Whether the server takes no writes now, since it cannot keep them: its disk is full, or fails."""
    return isinstance(error, redis.ResponseError) and "MISCONF" in str(error).split()


def make_app(settings: Settings, *, queues: tuple[str, ...] = ()) -> "Celery":
    """The Celery app: JSON only, late acks, no result backend, hints at four priorities. Opens no connection."""
    from celery import Celery

    url = redis_url(settings)
    app = Celery("bakehouse", broker=celery_url(url), set_as_current=False)
    app.conf.update(
        broker_use_ssl=tls_options(url),
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_ignore_result=True,
        task_acks_late=True,
        task_default_queue="bakehouse.unrouted",
        task_queues=[make_queue(name) for name in queues] or None,
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_enable_remote_control=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,  # a full server refuses what a consumer declares: no reason to die
        worker_enable_prefetch_count_reduction=False,  # after a lost connection one message at a time: admission counts
        broker_transport_options=transport_options(settings),
    )
    return app


def transport_options(settings: Settings) -> dict[str, Any]:
    """How kombu uses Redis, whoever sends or takes hints."""
    url = settings.redis_url or ""
    return {
        **({"master_name": parse(url).name} if url.startswith(SCHEME) else {}),
        # kombu would note each message in Redis until it is acked, and give it back after the visibility timeout: a
        # fifth of a message's cost, for what the janitor does within seconds
        "ack_emulation": False,
        "visibility_timeout": settings.visibility_timeout_s,
        "socket_timeout": settings.socket_timeout_s,
        "socket_connect_timeout": settings.socket_timeout_s,
        "socket_keepalive": True,
        # a consumer notices within 17 s, not 51, that its connection is dead without a word
        "health_check_interval": 8,
        "priority_steps": list(PRIORITY_STEPS),
        "sep": SEPARATOR,
        "queue_order_strategy": "round_robin",  # within a priority; else one build's queue would wait for another
    }


def make_connection(settings: Settings) -> Connection:
    """A connection for sending hints alone: without the Celery app, whose start takes as long as a small job."""
    url = redis_url(settings)
    return Connection(celery_url(url), ssl=tls_options(url), transport_options=transport_options(settings))


def make_queue(name: str) -> Queue:
    """The Celery queue `name`: a list in Redis, which needs no declaration, so that a full server refuses none."""
    return Queue(name, Exchange("bakehouse", type="direct"), routing_key=name, no_declare=True)


def hint_list(queue: str, priority: int) -> str:
    """The list in Redis that holds the hints of `queue` at `priority`, as kombu names it: 0 has the bare name."""
    return f"{queue}{SEPARATOR}{priority}" if priority else queue


def celery_url(url: str) -> str:
    """`url` as Celery spells it: a unix socket is `redis+socket://` there, and TLS no part of it."""
    if url.startswith(SCHEME):
        return celery_sentinel_url(url)
    return "redis+socket" + url.removeprefix("unix") if url.startswith("unix:") else without_tls_options(url)
