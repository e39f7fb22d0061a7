"""How a Lua script is called: by its hash, one by one or many in one round trip, loaded again whenever Redis forgot it.

`common.claims` knows what each script means; here only the calling is known.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import redis

PIPELINED = 256
"""Calls in one round trip: more gain nothing, and others wait."""


class Script(NamedTuple):
    """A script's text and its SHA-1, by which Redis knows it."""

    text: str
    sha: str


class Call(NamedTuple):
    """Keys and arguments of one call."""

    keys: Sequence[str]
    args: Sequence[str | bytes | int]


@cache
def load(name: str) -> Script:
    """The script `name`, read once a process."""
    text = resources.files("common.scripts").joinpath(f"{name}.lua").read_text(encoding="utf-8")
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def run(client: redis.Redis, name: str, *, keys: Sequence[str], args: Sequence[str | bytes | int]) -> Any:
    """The reply of one call. Raises `redis.RedisError`; the same call again is then safe."""
    script = load(name)
    try:
        return client.evalsha(script.sha, len(keys), *keys, *args)
    except redis.exceptions.NoScriptError:
        client.script_load(script.text)
        return client.evalsha(script.sha, len(keys), *keys, *args)


def run_all(client: redis.Redis, name: str, calls: Sequence[Call]) -> list[Any]:
    """The reply of each call, in order, in as few round trips as `PIPELINED` allows.

    Raises the first `redis.RedisError` of any: others of its round trip may have been done.
    """
    if len(calls) == 1:  # as most publishes are; a pipeline of one costs a third more
        return [run(client, name, keys=calls[0].keys, args=calls[0].args)]
    replies: list[Any] = []
    for start in range(0, len(calls), PIPELINED):
        slice_ = calls[start : start + PIPELINED]
        answers = _pipelined(client, load(name).sha, slice_)
        forgotten = [i for i, answer in enumerate(answers) if isinstance(answer, redis.exceptions.NoScriptError)]
        if forgotten:
            client.script_load(load(name).text)
            again = _pipelined(client, load(name).sha, [slice_[i] for i in forgotten])
            for i, answer in zip(forgotten, again, strict=True):
                answers[i] = answer
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        replies.extend(answers)
    return replies


def _pipelined(client: redis.Redis, sha: str, calls: Sequence[Call]) -> list[Any]:
    with client.pipeline(transaction=False) as pipe:
        for keys, args in calls:
            pipe.evalsha(sha, len(keys), *keys, *args)
        return pipe.execute(raise_on_error=False)
