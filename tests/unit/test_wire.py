"""What travels comes out as it went in, and nothing else comes out at all."""

import tracemalloc

import msgpack
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from common.errors import WireError
from common.wire import (
    MAX_UNPACKED_BYTES,
    WIRE_VERSION,
    MicroBatch,
    Request,
    Result,
    pack_micro_batch,
    pack_results,
    unpack_micro_batch,
    unpack_results,
)

requests = st.builds(
    Request,
    seq=st.integers(0, 2**40),
    round=st.integers(0, 9),
    line=st.integers(1, 2**40),
    custom_id=st.text(min_size=1),
    url=st.just("/v1/chat/completions"),
    body=st.binary(),
    original=st.none() | st.binary(),
)
results = st.builds(
    Result,
    seq=st.integers(0, 2**40),
    round=st.integers(0, 9),
    status=st.integers(100, 599),
    code=st.sampled_from(["", "timeout"]),
    attempts=st.integers(0, 9),
    prompt_tokens=st.integers(0, 2**31),
    completion_tokens=st.integers(0, 2**31),
    line=st.binary(),
)


def batch(of: tuple[Request, ...]) -> MicroBatch:
    return MicroBatch(
        v=WIRE_VERSION,
        job="j",
        mb=7,
        model="m",
        kind="normal",
        request_timeout_s=1.5,
        max_retries=3,
        fed_at=1.0,
        requests=of,
    )


@given(st.lists(requests, max_size=5).map(tuple))
def test_micro_batch_comes_out_as_it_went_in(of: tuple[Request, ...]) -> None:
    assert unpack_micro_batch(pack_micro_batch(batch(of))) == batch(of)


@given(st.lists(results, max_size=5))
def test_results_come_out_as_they_went_in(of: list[Result]) -> None:
    assert unpack_results(pack_results(of)) == of


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for unpack in (unpack_micro_batch, unpack_results):
        with pytest.raises(WireError):
            unpack(noise)


def fields(**changed: object) -> bytes:
    of = {**batch((Request(0, 0, 1, "c", "/v1/completions", b"{}", None),)).__dict__, **changed}
    return zstandard.compress(msgpack.packb(tuple(of.values())))


@pytest.mark.parametrize(
    "blob",
    [
        fields(v=WIRE_VERSION + 1),
        fields(requests=[[0, 0, 1]]),
        fields(requests=[["0", 0, 1, "c", "/v1/completions", b"{}", None]]),
        fields(mb="7"),
        fields(kind="strange"),
        fields(max_retries=10**9),
        fields(request_timeout_s=float("nan")),
        fields(request_timeout_s=-1.0),
        fields(requests=[[0, 0, 1, "c", "/shutdown", b"{}", None]]),
        zstandard.compress(b"\x91" * 100_000),
        zstandard.compress(b"\xdd\x7f\xff\xff\xff" * 100),
        zstandard.compress(msgpack.packb([WIRE_VERSION, msgpack.ExtType(5, b"x")])),
        zstandard.compress(msgpack.packb([1]))[:-1],
        zstandard.compress(msgpack.packb([])),
        zstandard.compress(msgpack.packb({"v": 1})),
        zstandard.compress(b""),
    ],
)
def test_strange_micro_batches_are_refused(blob: bytes) -> None:
    with pytest.raises(WireError):
        unpack_micro_batch(blob)


def test_a_bomb_is_not_unpacked() -> None:
    """One that says how large it is, and one that lies: memory stays where it was."""
    said = zstandard.compress(bytes(MAX_UNPACKED_BYTES + 1))
    assert len(said) < MAX_UNPACKED_BYTES / 10_000
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1_000_000))
    tracemalloc.start()
    try:
        for blob in (said, unsaid):
            with pytest.raises(WireError):
                unpack_results(blob)
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "rows",
    [
        [WIRE_VERSION + 1, []],
        [WIRE_VERSION],
        [WIRE_VERSION, [[1, 2]]],
        [WIRE_VERSION, [[0, 0, 200, "", 1, 0, 0, "text"]]],
        [WIRE_VERSION, [["0", 0, 200, "", 1, 0, 0, b""]]],
        [WIRE_VERSION, 3],
    ],
)
def test_strange_results_are_refused(rows: object) -> None:
    with pytest.raises(WireError):
        unpack_results(zstandard.compress(msgpack.packb(rows)))


def test_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = zstandard.compress(bytes(600 * 1024 * 1024), 1)
    assert len(bomb) < 100_000
    with pytest.raises(WireError, match="bytes unpacked"):
        unpack_results(bomb)
