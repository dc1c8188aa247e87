"""What a newcomer gives by mistake: an error of ours that says what is accepted, and nothing is sent."""

from __future__ import annotations

import array
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import peers
from headrace.client import Connection, JetStream, Stream, connect
from headrace.errors import ConfigurationError, HeadraceError, JetStreamApiError

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("payload", ["text", None, 5, {"a": 1}, array.array("i", [1, 2])])
async def test_a_payload_that_is_not_bytes_is_refused_everywhere(
    connection: Connection, js: JetStream, stream: Stream, payload: Any
) -> None:
    subject = f"{stream.name}.x"
    bucket = await js.create_or_update_key_value("ARGS", storage="memory")
    await js.publish(subject, b"x")
    message = await (await stream.create_consumer()).next(5)
    batch = js.batch()
    async with js.publisher() as publisher:
        calls: list[Callable[[], Any]] = [
            lambda: connection.publish(subject, payload),
            lambda: connection.request(subject, payload),
            lambda: js.publish(subject, payload),
            lambda: message.respond(payload),
            lambda: bucket.put("key", payload),
            lambda: publisher.send(subject, payload),
            lambda: publisher.send(subject, payload, {"A": "b"}),
            lambda: publisher.send_many([(subject, b"1"), (subject, payload)]),
        ]
        for call in calls:
            with pytest.raises(ConfigurationError, match=r"accepted are bytes, bytearray"):
                await call()
        with pytest.raises(ConfigurationError, match="accepted are bytes"):
            batch.add(subject, payload)
    assert (await stream.info()).state.messages == 2
    await js.delete_key_value("ARGS")


async def test_buffers_of_bytes_are_payloads(js: JetStream, stream: Stream) -> None:
    words = memoryview(array.array("i", [1, 2]))
    for payload in (bytearray(b"ab"), memoryview(b"ab"), words):
        ack = await js.publish(f"{stream.name}.x", payload)
        assert (await stream.get_message(ack.seq)).payload == bytes(payload)


@pytest.mark.parametrize("headers", [{"a": b"b"}, {"a": 5}, [("a", "b")], {"a": None}, {1: "b"}])
async def test_headers_that_are_no_text_are_refused(connection: Connection, headers: Any) -> None:
    with pytest.raises(ConfigurationError, match="accepted is a mapping from text to text"):
        await connection.publish("args", b"x", headers=headers)


@pytest.mark.parametrize("subject", [b"a", None, 5, "a\ud800"])
async def test_a_subject_that_is_no_text_is_refused(connection: Connection, subject: Any) -> None:
    with pytest.raises(HeadraceError, match="is not text"):
        await connection.publish(subject)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"retention": "work"}, "retention is 'work'; accepted: 'limits', 'interest', 'workqueue'"),
        ({"max_age": "1d"}, "max_age is '1d': .*; accepted are seconds, or a timedelta"),
        ({"max_msgs": "many"}, "max_msgs is 'many'"),
        ({"subjects": [5]}, "subjects is"),
    ],
)
async def test_a_setting_of_the_wrong_kind_is_named_before_it_is_sent(
    js: JetStream, values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        await js.create_stream(name="ARGS", **values)


async def test_a_list_of_one_may_be_given_alone(js: JetStream) -> None:
    stream = await js.create_stream(
        name="ARGS", subjects="args.>", max_age=timedelta(hours=1), storage="memory"
    )
    consumer = await stream.create_consumer(filter_subjects="args.a")
    assert (await stream.info()).config.subjects == ("args.>",)
    assert (await consumer.info()).config.filter_subjects == ("args.a",)
    await stream.delete()


@pytest.mark.parametrize("pattern", ["T.a b", "T.a x 0\r\n\r\nPUB q 0\r\n", "T..a"])
async def test_a_filter_cannot_break_the_line_it_is_sent_in(
    connection: Connection, stream: Stream, pattern: str
) -> None:
    with pytest.raises(HeadraceError, match="accepted are dot-separated"):
        await stream.create_consumer(name="c", filter_subject=pattern)
    await connection.flush()
    assert connection.reconnects == 0


async def test_pulls_say_what_they_accept(stream: Stream) -> None:
    consumer = await stream.create_consumer()
    wrong: list[dict[str, Any]] = [
        {"max_wait": timedelta(seconds=1)},
        {"max_messages": 1.5},
        {"timeout": 1},
    ]
    for arguments in wrong:
        with pytest.raises(ConfigurationError, match=next(iter(arguments))):
            await consumer.fetch(**arguments)
    with pytest.raises(ConfigurationError, match="batch"):
        consumer.consume(batch=1)  # type: ignore[call-arg]


async def test_a_lifetime_that_the_bucket_does_not_allow_is_explained(js: JetStream) -> None:
    bucket = await js.create_key_value("ARGS", storage="memory", message_ttl=False)
    for call in (bucket.put, bucket.create):
        with pytest.raises(JetStreamApiError) as caught:
            await call("key", b"x", ttl=5)
        assert "message_ttl" in caught.value.__notes__[0]
    await js.delete_key_value("ARGS")


@pytest.mark.parametrize("host", ["a..b", "a" * 80])
async def test_an_impossible_host_is_an_error_of_ours(host: str) -> None:
    with pytest.raises(HeadraceError, match="cannot be a host name"):
        await connect(f"nats://{host}:4222")


async def test_an_option_of_the_wrong_kind_is_named(
    reference_server: peers.ServerProcess,
) -> None:
    with pytest.raises(ConfigurationError, match=r"option connect_timeout is '5'"):
        connect(reference_server.url, connect_timeout="5")  # type: ignore[arg-type]


async def test_an_object_is_described_in_text_or_not_at_all(js: JetStream) -> None:
    store = await js.create_object_store("ARGS", storage="memory")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"headers": {"a": 5}}, "headers are"),
        ({"headers": {"a": [5]}}, "headers are"),
        ({"metadata": {"a": 5}}, "metadata has 'a': 5"),
        ({"metadata": {5: "a"}}, "metadata has 5"),
    ]
    await store.put("good", b"x")
    for arguments, reason in wrong:
        with pytest.raises(ConfigurationError, match=reason):
            await store.put("bad", b"x", **arguments)
        with pytest.raises(ConfigurationError, match=reason):
            await store.update_meta("good", **arguments)
    for name in (5, "", "a" * 5000):
        with pytest.raises(ConfigurationError, match="name"):
            await store.put(name, b"x")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="name"):
        await store.update_meta("good", new_name="a" * 5000)
    assert [info.name for info in await store.list(include_deleted=True)] == ["good"]
    await js.delete_object_store("ARGS")


async def test_lifetimes_and_sequences_are_checked(js: JetStream, stream: Stream) -> None:
    await stream.update(allow_msg_ttl=True)
    await js.publish(f"{stream.name}.x", ttl=timedelta(minutes=1))
    message = await stream.get_message(1)
    assert message.headers["Nats-TTL"] == "60s"
    consumer = await stream.create_consumer()
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: js.publish(f"{stream.name}.x", ttl=-1), "duration is -1"),
        (lambda: stream.get_message(0), "sequence is 0"),
        (lambda: stream.get_message("1"), "sequence is '1'"),  # type: ignore[arg-type]
        (lambda: stream.purge(below=2, keep=1), "not both"),
        (lambda: consumer.reset(-1), "sequence is -1"),
        (lambda: consumer.pause("1h"), "until is '1h'"),  # type: ignore[arg-type]
    ]
    for call, reason in calls:
        with pytest.raises(ConfigurationError, match=reason):
            await call()


async def test_a_request_that_cannot_begin_leaves_nothing_behind(connection: Connection) -> None:
    with pytest.raises(TypeError):
        await connection.request("args", timeout="5")  # type: ignore[arg-type]
    assert connection.stats().requests_in_flight == 0


async def test_a_name_in_the_place_of_a_configuration_is_told_where_it_goes(
    js: JetStream, stream: Stream
) -> None:
    a_name: Any = "ORDERS"
    for call in (
        lambda: js.create_stream(a_name, subjects=["orders.>"]),
        lambda: js.create_or_update_stream(a_name),
        lambda: stream.create_consumer(a_name),
    ):
        with pytest.raises(ConfigurationError, match=r"'ORDERS' is no \w+Config; .*name='ORDERS'"):
            await call()
    with pytest.raises(ConfigurationError, match="is no StreamConfig; pass one, or its fields"):
        await js.create_stream({"name": "ORDERS"})  # type: ignore[arg-type]
