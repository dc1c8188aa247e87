"""nats-py, unmodified: keys and messages with a lifetime, and streams with every setting it knows."""

from __future__ import annotations

import nats.js.api as js_api
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.js.api import KeyValueConfig

from conformance.nats_py import listed
from waiting import until

pytestmark = pytest.mark.peer


async def test_a_key_with_a_lifetime_leaves_a_marker_that_watchers_see(
    connection: Client,
) -> None:
    js = connection.jetstream()
    kv = await js.create_key_value(KeyValueConfig(bucket="B", limit_marker_ttl=30.0))
    await kv.put("stays", b"1")
    await kv.create("lasts", b"2", msg_ttl=600.0)
    with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
        await kv.create("lasts", b"x")
    await kv.create("purged", b"3")
    await kv.purge("purged", msg_ttl=60.0)
    watcher = await kv.watch("goes")
    assert await watcher.updates(timeout=10) is None
    created = await kv.create("goes", b"2", msg_ttl=1.0)
    first = await watcher.updates(timeout=10)
    assert first is not None
    assert (first.value, first.revision) == (b"2", created)
    gone = await watcher.updates(timeout=10)
    assert gone is not None
    assert gone.operation == "PURGE"
    assert await listed(kv.keys) == ["stays", "lasts"]
    assert await kv.update("goes", b"again", last=gone.revision) > gone.revision
    assert (await kv.get("goes")).value == b"again"
    await watcher.stop()


async def test_a_published_message_with_a_lifetime_goes(connection: Client) -> None:
    js = connection.jetstream()
    await js.add_stream(name="S", subjects=["s"], allow_msg_ttl=True)
    await js.publish("s", b"1", headers={"Nats-TTL": "1"})
    await js.publish("s", b"2", headers={"Nats-TTL": "never"})

    async def is_gone() -> bool:
        return (await js.stream_info("S")).state.messages < 2

    await until(is_gone, "it has outlived its time")
    assert (await js.get_last_msg("S", "s")).data == b"2"


async def test_every_setting_of_a_stream_is_taken(connection: Client) -> None:
    js = connection.jetstream()
    created = await js.add_stream(
        name="S",
        subjects=["s.*"],
        compression=js_api.StoreCompression.S2,
        republish=js_api.RePublish(src="s.*", dest="out.{{wildcard(1)}}", headers_only=True),
        allow_msg_ttl=True,
        subject_delete_marker_ttl=5.0,
        allow_atomic=True,
        allow_msg_schedules=True,
        metadata={"k": "v"},
        consumer_limits=js_api.StreamConsumerLimits(max_ack_pending=7),
        first_seq=100,
    )
    config = created.config
    assert config.compression == js_api.StoreCompression.S2
    assert (config.allow_atomic, config.allow_msg_schedules) == (True, True)
    assert config.subject_delete_marker_ttl == 5.0
    assert config.consumer_limits is not None
    assert config.consumer_limits.max_ack_pending == 7
    assert config.metadata is not None
    assert config.metadata["k"] == "v"
    listener = await connection.subscribe("out.*")
    await connection.flush()
    assert (await js.publish("s.a", b"12345")).seq == 100
    message = await listener.next_msg(timeout=10)
    assert (message.subject, message.data) == ("out.a", b"")
    assert message.headers is not None
    assert message.headers["Nats-Msg-Size"] == "5"


async def test_a_counter_counts(connection: Client) -> None:
    js = connection.jetstream()
    await js.add_stream(name="S", subjects=["c.*"], allow_msg_counter=True)
    for step in ("+5", "-2"):
        await js.publish("c.a", b"", headers={"Nats-Incr": step})
    assert (await js.get_last_msg("S", "c.a")).data == b'{"val":"3"}'
