"""What is missing says so by its class, whatever was asked of it."""

from __future__ import annotations

import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import headrace
from headrace import (
    BucketNotFoundError,
    ConsumerNotFoundError,
    ErrorCode,
    NoRespondersError,
    StreamNotFoundError,
)
from headrace.client import Connection, JetStream, Stream

Call = Callable[[JetStream, str], Awaitable[Any]]


@pytest.mark.peer
@pytest.mark.parametrize(
    "call",
    [
        lambda js, name: js.stream("NONE"),
        lambda js, name: js.delete_stream("NONE"),
        lambda js, name: js.update_stream(name="NONE"),
        lambda js, name: js.consumer("NONE", "c"),
        lambda js, name: js.create_consumer("NONE", durable_name="c"),
        lambda js, name: js.delete_consumer("NONE", "c"),
    ],
)
async def test_a_stream(js: JetStream, call: Call) -> None:
    with pytest.raises(StreamNotFoundError, match="stream not found") as caught:
        await call(js, "")
    assert caught.value.err_code == ErrorCode.STREAM_NOT_FOUND
    assert not isinstance(caught.value, BucketNotFoundError)


@pytest.mark.peer
@pytest.mark.parametrize(
    "call",
    [
        lambda js, name: js.consumer(name, "none"),
        lambda js, name: js.delete_consumer(name, "none"),
    ],
)
async def test_a_consumer(js: JetStream, stream: Stream, call: Call) -> None:
    with pytest.raises(ConsumerNotFoundError) as caught:
        await call(js, stream.name)
    assert caught.value.err_code == ErrorCode.CONSUMER_NOT_FOUND


@pytest.mark.peer
@pytest.mark.parametrize(
    "call",
    [
        lambda js, name: js.key_value("NONE"),
        lambda js, name: js.update_key_value("NONE"),
        lambda js, name: js.delete_key_value("NONE"),
        lambda js, name: js.object_store("NONE"),
        lambda js, name: js.update_object_store("NONE"),
        lambda js, name: js.delete_object_store("NONE"),
    ],
)
async def test_a_bucket(js: JetStream, call: Call) -> None:
    with pytest.raises(BucketNotFoundError, match="there is no bucket 'NONE'") as caught:
        await call(js, "")
    assert (caught.value.code, caught.value.err_code) == (404, 10059)


@pytest.mark.peer
async def test_a_bucket_that_was_deleted(js: JetStream) -> None:
    kv = await js.create_key_value("GONE", storage="memory")
    await js.delete_key_value("GONE")
    objects = await js.create_object_store("GONE", storage="memory")
    await js.delete_object_store("GONE")
    asked: list[Callable[[], Awaitable[Any]]] = [
        kv.info,
        kv.status,
        lambda: kv.get("a"),
        lambda: kv.get("a", revision=1),
        kv.keys,
        lambda: kv.history("a"),
        kv.watch,
        objects.status,
        lambda: objects.get("a"),
        lambda: objects.info("a"),
    ]
    for ask in asked:
        with pytest.raises(BucketNotFoundError, match="'GONE'"):
            await ask()


@pytest.mark.peer
async def test_a_publish_that_no_stream_takes_fails_after_one_question(
    connection: Connection, js: JetStream
) -> None:
    """A server that runs alone elects nobody, so there is nothing to wait for."""
    before = connection.stats().requests
    with pytest.raises(NoRespondersError, match=r"no stream has the subject 'nobody\.has\.this'"):
        await js.publish("nobody.has.this", b"x", delivery_timeout=60)
    assert connection.stats().requests - before == 2  # the publish, and who has the subject
    assert connection.stats().leader_waits == 0


def test_every_error_has_a_name() -> None:
    assert all(code == code.value == code.err_code for code in ErrorCode)
    row = ErrorCode(10071)
    assert (row.name, str(row), f"{row}") == ("STREAM_WRONG_LAST_SEQUENCE", "10071", "10071")
    assert repr(row) == "<ErrorCode.STREAM_WRONG_LAST_SEQUENCE: 10071>"
    assert pickle.loads(pickle.dumps(row)) is row
    assert row.with_(seq=7).description == "wrong last sequence: 7"


def test_they_are_one_family_and_survive_a_process_boundary() -> None:
    error = BucketNotFoundError(404, 10059, "there is no bucket 'B'")
    assert isinstance(error, StreamNotFoundError | headrace.JetStreamApiError)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied)) == (BucketNotFoundError, str(error))
