"""Buckets between nats.go and us: the documents are those that its ``prepareKeyValueConfig`` sends.

But for the storage, which is memory: nats-server may refuse a stream on disk just after the last was deleted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from headrace.api.streams import StreamSource
from headrace.client import Connection, JetStream

MINUTE_NS = 60 * 10**9


def document(bucket: str, **changes: Any) -> dict[str, Any]:
    """A bucket with nats.go's defaults, with each field that it writes."""
    return {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "discard": "new",
        "max_age": 0,
        "max_msgs_per_subject": 1,
        "max_msg_size": -1,
        "storage": "memory",
        "num_replicas": 1,
        "duplicate_window": 2 * MINUTE_NS,
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "compression": "none",
        "allow_direct": True,
        "mirror_direct": False,
        "consumer_limits": {},
        **changes,
    }


async def asked(connection: Connection, verb: str, config: dict[str, Any]) -> dict[str, Any]:
    """What the server answers to nats.go."""
    body = msgspec.json.encode(config)
    answer = await connection.request(f"$JS.API.STREAM.{verb}.{config['name']}", body)
    found: dict[str, Any] = msgspec.json.decode(answer.payload)
    return found


async def made(connection: Connection, config: dict[str, Any]) -> None:
    answer = await asked(connection, "CREATE", config)
    assert "error" not in answer, answer


@pytest.fixture(autouse=True)
async def no_bucket_left(js: JetStream) -> AsyncIterator[None]:
    yield
    for name in [name async for name in js.key_values()]:
        await js.delete_key_value(name)


async def test_a_bucket_of_nats_go_is_taken_as_it_is_and_updated(
    connection: Connection, js: JetStream
) -> None:
    await made(connection, document("GO"))
    assert await (await js.create_key_value("GO", storage="memory")).put("a", b"1") == 1
    for kv in (
        await js.create_or_update_key_value("GO", storage="memory"),
        await js.create_or_update_key_value("GO", history=5, storage="memory"),
        await js.update_key_value("GO", history=3, storage="memory"),
    ):
        assert (await kv.get("a")).value == b"1"
    config = (await kv.info()).config
    assert (config.max_msgs_per_subject, config.allow_direct, config.allow_msg_ttl) == (
        3,
        True,
        False,
    )
    await made(connection, document("GO", max_msgs_per_subject=3))  # for nats.go it is the same yet


@pytest.mark.parametrize(
    "changes",
    [
        {"max_age": MINUTE_NS, "duplicate_window": MINUTE_NS},
        {"allow_msg_ttl": True, "subject_delete_marker_ttl": MINUTE_NS},
        {"max_bytes": 1 << 20, "compression": "s2", "storage": "file", "description": "d"},
    ],
)
async def test_one_with_other_settings_is_taken_by_the_same_names(
    connection: Connection, js: JetStream, changes: dict[str, Any]
) -> None:
    await made(connection, document("GO", **changes))
    options: dict[str, Any] = {"storage": "memory"}
    if "max_age" in changes:
        options |= {"ttl": 60}
    elif "max_bytes" in changes:
        options |= {
            "max_bytes": 1 << 20, "compression": True, "storage": "file", "description": "d",
        }  # fmt: skip
    else:
        options |= {"marker_ttl": 60}
    before = (await (await js.key_value("GO")).info()).config
    await js.create_or_update_key_value("GO", **options)
    assert (await (await js.create_key_value("GO", **options)).info()).config == before


async def test_copies_of_nats_go_are_taken(connection: Connection, js: JetStream) -> None:
    """It gives them a window for duplicates, which ours have not."""
    await js.create_key_value("FROM", storage="memory")
    copy = {
        "name": "KV_FROM",
        "subject_transforms": [{"src": "$KV.FROM.>", "dest": "$KV.COPY.>"}],
    }
    await made(connection, document("COPY", sources=[copy]))
    mirror = document("MIRROR", mirror={"name": "KV_FROM"}, mirror_direct=True)
    del mirror["subjects"]
    await made(connection, mirror)
    origin = StreamSource(name="FROM")
    await js.create_or_update_key_value("COPY", sources=[origin], storage="memory")
    await js.create_or_update_key_value("MIRROR", mirror=origin, storage="memory")


async def test_nats_go_takes_what_is_made_as_it_makes_it(
    connection: Connection, js: JetStream
) -> None:
    await js.create_key_value("OURS", direct=True, message_ttl=False, storage="memory")
    await made(connection, document("OURS"))
    answer = await asked(connection, "UPDATE", document("OURS", max_msgs_per_subject=4))
    assert "error" not in answer, answer


async def test_nats_go_takes_the_default_but_with_create_or_update(
    connection: Connection, js: JetStream
) -> None:
    """As with nats-py's: it opens them, but cannot forbid the ttl of keys, which it asks for."""
    await js.create_key_value("OURS", storage="memory")
    assert (await asked(connection, "CREATE", document("OURS")))["error"]["err_code"] == 10058
    assert (await asked(connection, "UPDATE", document("OURS")))["error"]["err_code"] == 10052
