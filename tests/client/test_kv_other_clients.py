"""Buckets that other clients made, and others that take ours: nats-py's, and nats.go's settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import nats
import pytest
from nats.aio.client import Client

import peers
from headrace import BucketNotFoundError, ErrorCode, JetStreamApiError, KeyValueOptions
from headrace.client import JetStream
from headrace.errors import ConfigurationError

pytestmark = pytest.mark.peer


@pytest.fixture
async def other(reference_server: peers.ServerProcess) -> AsyncIterator[Client]:
    client = await nats.connect(reference_server.url)
    yield client
    await client.close()


@pytest.fixture(autouse=True)
async def no_bucket_left(js: JetStream) -> AsyncIterator[None]:
    yield
    async for name in js.key_values():
        await js.delete_key_value(name)


async def test_a_bucket_of_nats_py_is_created_found_and_updated(
    js: JetStream, other: Client
) -> None:
    theirs = await other.jetstream().create_key_value(bucket="THEIRS")
    await theirs.put("a", b"1")
    for made in (
        await js.create_key_value("THEIRS"),
        await js.create_or_update_key_value("THEIRS"),
        await js.create_or_update_key_value("THEIRS", history=5),
        await js.update_key_value("THEIRS", history=3),
    ):
        assert (await made.get("a")).value == b"1"
    config = (await made.info()).config
    assert (config.max_msgs_per_subject, config.allow_msg_ttl) == (3, True)


async def test_nats_py_creates_the_bucket_that_is_made_with_defaults(
    js: JetStream, other: Client
) -> None:
    ours = await js.create_key_value("OURS")
    await ours.put("a", b"1", ttl=60)
    theirs = await other.jetstream().create_key_value(bucket="OURS")
    assert (await theirs.get("a")).value == b"1"


async def test_nats_py_creates_the_objects_made_with_defaults(js: JetStream, other: Client) -> None:
    await js.create_object_store("OURS")
    await other.jetstream().create_object_store("OURS")
    await js.delete_object_store("OURS")
    await other.jetstream().create_object_store("THEIRS")
    await js.create_object_store("THEIRS")
    await js.create_or_update_object_store("THEIRS")
    await js.delete_object_store("THEIRS")


async def test_a_bucket_as_nats_go_makes_it_stays_as_it_is(js: JetStream) -> None:
    """And so does one of an earlier version of ours, which made them like that."""
    await js.create_key_value("GO", direct=True, message_ttl=False)
    await js.create_key_value("GO")
    await js.create_or_update_key_value("GO", history=5)
    config = (await (await js.update_key_value("GO", history=4)).info()).config
    assert (config.allow_direct, config.allow_msg_ttl) == (True, False)
    await js.update_key_value("GO", direct=False, message_ttl=True)
    config = (await (await js.key_value("GO")).info()).config
    assert (config.allow_direct, config.allow_msg_ttl) == (False, True)


async def test_what_is_named_must_be_so(js: JetStream) -> None:
    await js.create_key_value("GO", direct=True, message_ttl=False)
    wrong: list[KeyValueOptions] = [{"direct": False}, {"message_ttl": True}]
    for options in wrong:
        with pytest.raises(JetStreamApiError) as caught:
            await js.create_key_value("GO", **options)
        assert caught.value.err_code == ErrorCode.STREAM_NAME_EXISTS
    with pytest.raises(JetStreamApiError) as caught:
        await js.create_key_value("GO", history=9)
    assert caught.value.err_code == ErrorCode.STREAM_NAME_EXISTS
    with pytest.raises(ConfigurationError, match="marker_ttl needs message_ttl"):
        await js.create_key_value("NO", message_ttl=False, marker_ttl=5)


async def test_marks_are_kept_once_keys_may_have_a_ttl(js: JetStream) -> None:
    await js.create_key_value("GO", message_ttl=False)
    status = await (await js.update_key_value("GO", marker_ttl=5)).status()
    assert (status.marker_ttl, status.stream.config.allow_msg_ttl) == (5.0, True)


async def test_a_missing_bucket_cannot_be_updated(js: JetStream) -> None:
    with pytest.raises(BucketNotFoundError, match="there is no bucket 'NONE'"):
        await js.update_key_value("NONE")
