"""The JetStream context and its streams, at both servers."""

from __future__ import annotations

import asyncio
import logging
import pickle
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from headrace.api.consumers import ConsumerConfig
from headrace.api.keywords import ConsumerFields, StreamFields
from headrace.api.streams import StreamConfig, StreamSource
from headrace.client import Connection, JetStream, Stream
from headrace.client.events import SettingsChanged
from headrace.errors import (
    ConfigurationError,
    JetStreamApiError,
    NoRespondersError,
    StreamExistsError,
)

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


async def test_account_info_says_what_is_used(js: JetStream, stream: Stream) -> None:
    info = await js.account_info()
    assert info.streams >= 1


async def test_a_stream_is_created_from_a_config_or_from_keywords(js: JetStream) -> None:
    config = StreamConfig(name="MADE", subjects=("made.>",), storage="memory")
    stream = await js.create_stream(config, max_age=timedelta(minutes=1))
    assert stream.cached_info is not None
    assert stream.cached_info.config.max_age == 60
    again = await js.create_stream(config, max_age=60)
    assert again.name == "MADE"
    with pytest.raises(StreamExistsError, match=r"10058\): max_age is 60.0, not 61") as caught:
        await js.create_stream(config, max_age=61)
    assert (caught.value.err_code, caught.value.differences) == (10058, {"max_age": (60.0, 61)})
    assert pickle.loads(pickle.dumps(caught.value)).differences == {"max_age": (60.0, 61)}
    updated = await js.create_or_update_stream(config, max_age=61)
    assert updated.cached_info is not None
    assert updated.cached_info.config.max_age == 61
    assert (await updated.update(max_age=62)).config.subjects == ("made.>",)
    await js.delete_stream("MADE")
    with pytest.raises(JetStreamApiError, match="stream not found"):
        await js.stream("MADE")


async def test_a_deploy_changes_what_it_names_and_says_what_it_has_changed(
    js: JetStream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headrace.client")
    events = js.connection.events()
    deploy: StreamFields = {"name": "MADE", "subjects": ["made.*"], "storage": "memory"}
    made = await js.create_or_update_stream(**deploy)
    await made.update(max_age=3600, max_bytes=1_000_000, metadata={"by": "an operator"})
    deployed = await js.create_or_update_stream(**deploy)
    assert (made.changes, deployed.changes, caplog.messages) == ({}, {}, [])
    assert deployed.cached_info is not None
    config = deployed.cached_info.config
    assert (config.max_age, config.max_bytes, config.metadata["by"]) == (3600, 1e6, "an operator")
    deployed = await js.create_or_update_stream(name="MADE", max_age=60, max_bytes=-1)
    assert deployed.changes == {
        "max_age": (3600.0, 60.0),
        "max_bytes": (1_000_000, -1),
        "duplicate_window": (120.0, 60.0),  # may not be longer
    }
    (line,) = caplog.messages
    assert line.startswith("stream 'MADE' is changed: ")
    assert "max_age 3600.0 → 60.0" in line
    event = await asyncio.wait_for(anext(events), 5)
    assert event == SettingsChanged("stream 'MADE'", deployed.changes)
    document = StreamConfig(name="MADE", subjects=("made.>",), storage="memory")
    deployed = await js.create_or_update_stream(document, max_bytes=5000)
    assert deployed.changes == {"subjects": (("made.*",), ("made.>",)), "max_bytes": (-1, 5000)}
    await deployed.delete()


async def test_a_deploy_changes_what_it_names_of_a_consumer(
    js: JetStream, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headrace.client")
    deploy: ConsumerFields = {"durable_name": "d", "filter_subject": f"{stream.name}.a"}
    made = await stream.create_or_update_consumer(**deploy)
    assert made.cached_info is not None
    there = msgspec.structs.replace(made.cached_info.config, ack_wait=120.0, max_deliver=5)
    await stream.update_consumer(there)
    deployed = await js.create_or_update_consumer(stream.name, **deploy)
    assert (made.changes, deployed.changes, caplog.messages) == ({}, {}, [])
    assert (await deployed.info()).config.ack_wait == 120
    both = [f"{stream.name}.a", f"{stream.name}.b"]
    deployed = await stream.create_or_update_consumer(durable_name="d", filter_subjects=both)
    assert deployed.changes == {
        "filter_subject": (f"{stream.name}.a", ""),
        "filter_subjects": ((), tuple(both)),
    }
    document = ConsumerConfig(durable_name="d", ack_wait=60.0)
    deployed = await stream.create_or_update_consumer(document)
    assert deployed.changes == {"ack_wait": (120.0, 60.0)}
    assert [line.partition(" is changed")[0] for line in caplog.messages] == [
        f"consumer 'd' of stream {stream.name!r}"
    ] * 2
    config = (await deployed.info()).config
    assert (config.max_deliver, config.filter_subjects) == (5, tuple(both))
    with pytest.raises(JetStreamApiError, match="10012"):
        await stream.create_or_update_consumer(durable_name="d", deliver_policy="new")


async def test_a_misspelt_field_or_name_is_refused_here(js: JetStream) -> None:
    with pytest.raises(ConfigurationError, match="maximum_age"):
        await js.create_stream(name="X", maximum_age=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="stream name 'a b'"):
        await js.create_stream(name="a b")
    with pytest.raises(ConfigurationError, match="empty"):
        await js.create_stream()
    with pytest.raises(ConfigurationError, match="not both"):
        js.connection.jetstream(domain="a", prefix="b")


async def test_streams_are_listed(js: JetStream, stream: Stream) -> None:
    assert stream.name in [name async for name in js.stream_names()]
    assert [n async for n in js.stream_names(subject=f"{stream.name}.a")] == [stream.name]
    infos = [info async for info in js.streams()]
    assert stream.name in {info.config.name for info in infos}


async def test_a_publish_is_acknowledged_with_its_sequence(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    first = await js.publish(subject, b"1")
    assert (first.stream, first.seq, first.duplicate) == (stream.name, 1, False)
    one = await js.publish(subject, b"2", msg_id="once")
    two = await js.publish(subject, b"2", msg_id="once")
    assert (one.seq, two.seq, two.duplicate) == (2, 2, True)


async def test_expectations_are_checked_by_the_stream(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    await js.publish(subject, expected_last_sequence=0, expected_stream=stream.name)
    await js.publish(subject, expected_last_subject_sequence=1)
    for expectation in (
        {"expected_last_sequence": 7},
        {"expected_last_subject_sequence": 0},
        {"expected_stream": "OTHER"},
        {"expected_last_msg_id": "none"},
    ):
        with pytest.raises(JetStreamApiError):
            await js.publish(subject, **expectation)


async def test_a_publish_no_stream_wants_fails(js: JetStream) -> None:
    with pytest.raises(NoRespondersError, match=r"nobody\.wants"):
        await js.publish("nobody.wants", retries=0)


async def test_messages_are_read_and_deleted_by_sequence(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    await js.publish(subject, b"one", headers={"A": "1"})
    await js.publish(f"{stream.name}.b", b"two")
    for direct in (False, True):
        await stream.update(allow_direct=direct)
        message = await stream.get_message(1)
        assert (message.subject, message.sequence, message.payload) == (subject, 1, b"one")
        assert list(message.headers.items()) == [("A", "1")]
        assert abs(message.timestamp_ns / 1e9 - datetime.now(UTC).timestamp()) < 60
        assert (await stream.get_last_message(f"{stream.name}.*")).payload == b"two"
        assert (await stream.get_next_message(f"{stream.name}.b")).sequence == 2
        with pytest.raises(JetStreamApiError, match="no message found"):
            await stream.get_message(99)
    await stream.delete_message(1)
    with pytest.raises(JetStreamApiError):
        await stream.get_message(1)


async def test_info_counts_subjects_and_purge_removes(js: JetStream, stream: Stream) -> None:
    for number in range(6):
        await js.publish(f"{stream.name}.{number % 2}")
    info = await stream.info(subjects=f"{stream.name}.*")
    assert info.state.subjects == {f"{stream.name}.0": 3, f"{stream.name}.1": 3}
    assert await stream.purge(subject=f"{stream.name}.0", keep=1) == 2
    assert await stream.purge(below=5) == 2
    assert (await stream.info(deleted=True)).state.messages == 2


async def test_consumers_are_created_updated_listed_and_deleted(
    js: JetStream, stream: Stream
) -> None:
    made = await stream.create_consumer(durable_name="d", filter_subject=f"{stream.name}.a")
    assert made.cached_info is not None
    assert made.cached_info.config.ack_policy == "explicit"
    with pytest.raises(JetStreamApiError) as caught:
        await stream.create_consumer(durable_name="d", max_deliver=3)
    assert caught.value.err_code == 10148
    await stream.update_consumer(ConsumerConfig(durable_name="d", max_deliver=3))
    with pytest.raises(JetStreamApiError) as caught:
        await stream.update_consumer(durable_name="other")
    assert caught.value.err_code == 10149
    ephemeral = await js.create_or_update_consumer(stream.name, inactive_threshold=60)
    assert len(ephemeral.name) == 8
    names = {name async for name in stream.consumer_names()}
    assert names == {"d", ephemeral.name}
    assert {info.name async for info in stream.consumers()} == names
    assert (await (await js.consumer(stream.name, "d")).info()).config.max_deliver == 3
    await ephemeral.delete()
    await js.delete_consumer(stream.name, "d")
    with pytest.raises(JetStreamApiError, match="consumer not found"):
        await stream.consumer("d")


async def test_listings_come_in_pages(js: JetStream, stream: Stream) -> None:
    for number in range(260):
        await stream.create_consumer(durable_name=f"c{number:03}", mem_storage=True)
    assert len([info async for info in stream.consumers()]) == 260


async def test_a_server_without_jetstream_is_named(js: JetStream) -> None:
    other = js.connection.jetstream(prefix="nobody.API", timeout=1)
    with pytest.raises(NoRespondersError, match="JetStream is not enabled"):
        await other.account_info()


async def test_a_context_belongs_to_its_connection(connection: Connection) -> None:
    assert connection.jetstream().connection is connection


async def test_a_consumer_changes_itself(stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c", ack_wait=10)
    info = await consumer.update(ack_wait=20, description="slower")
    assert (info.config.ack_wait, info.config.description) == (20, "slower")
    assert consumer.cached_info == info
    assert (await consumer.info()).config.ack_wait == 20


async def test_the_context_reaches_consumers_without_the_stream(
    js: JetStream, stream: Stream
) -> None:
    await js.publish(f"{stream.name}.a", b"1")
    await js.create_consumer(stream.name, durable_name="c")
    assert [info.name async for info in js.consumers(stream.name)] == ["c"]
    assert [name async for name in js.consumer_names(stream.name)] == ["c"]
    ordered = await js.ordered_consumer(stream.name)
    assert (await ordered.next()).payload == b"1"
    await ordered.delete()


async def test_a_push_consumer_cannot_be_pulled_from(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(
        name="pushes", deliver_subject="to.here", ack_policy="none", inactive_threshold=60
    )
    for pull in (consumer.fetch, consumer.next):
        with pytest.raises(ConfigurationError, match=r"pushes to 'to\.here'"):
            await pull()
    with pytest.raises(ConfigurationError, match="cannot be pulled from"):
        consumer.consume()
    heard = await js.connection.subscribe("to.here")
    await js.publish(f"{stream.name}.a", b"1")
    assert (await heard.next(5)).payload == b"1"
    await heard.unsubscribe()
    await consumer.delete()


async def test_a_source_in_another_domain_is_told_by_its_api(js: JetStream) -> None:
    try:
        stream = await js.create_stream(
            name="FAR", storage="memory", sources=[StreamSource(name="ORIGIN", domain="hub")]
        )
    except JetStreamApiError as error:
        assert "not supported" in error.description or "external" in error.description
        return
    source = (await stream.info()).config.sources[0]
    assert source.external is not None
    assert source.external.api == "$JS.hub.API"
    await stream.delete()
