from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.client import connect
from headrace.demo.errors import DemoError
from headrace.demo.flights import find_data, load_flights, messages
from headrace.demo.publish import GROUP, PARTITIONS, STREAM, FlightStream
from headrace.embedded import Broker as Embedded
from headrace.errors import ConnectFailedError, ConnectionClosedError
from headrace.groups.record.names import elastic_stream
from headrace.transforms import partition
from waiting import until

if TYPE_CHECKING:
    from headrace.broker.server import Broker


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights(find_data()).slice(0, 5000)


async def publish(url: str, flights: pa.Table, stop: int) -> tuple[int, int]:
    """Publish up to flight ``stop``; returns what was there before, and what was acknowledged."""
    acked: list[int] = []
    async with FlightStream(url) as stream:
        before = await stream.prepare(flights)
        await stream.publish(flights, before, stop, acked.append)
    return before, sum(acked)


async def test_flight_n_has_sequence_n_and_the_partition_of_its_aircraft(
    broker: Broker, flights: pa.Table
) -> None:
    assert await publish(broker.client_url, flights, 2500) == (0, 2500)
    async with connect(broker.client_url) as connection:
        js = connection.jetstream()
        stream = await js.stream(STREAM)
        queue = await js.stream(elastic_stream(STREAM, GROUP))

        async def is_copied() -> bool:
            return (await queue.info()).state.last_seq == 2500

        await until(is_copied, "the group does not get the flights")
        for sequence, (subject, payload) in zip((1, 2), messages(flights, 0, 2), strict=True):
            stored = await stream.get_message(sequence)
            number = partition(subject.split(".")[2].encode(), PARTITIONS)
            assert (stored.subject, stored.payload) == (subject, payload)
            copied = await queue.get_message(sequence)
            assert (copied.subject, copied.payload) == (f"{number}.{subject}", payload)


async def test_a_second_run_publishes_exactly_the_rest(broker: Broker, flights: pa.Table) -> None:
    assert await publish(broker.client_url, flights, 1500) == (0, 1500)
    assert await publish(broker.client_url, flights, 1500) == (1500, 0)
    assert await publish(broker.client_url, flights, 5000) == (1500, 3500)


async def test_something_else_in_the_stream_is_noticed_before_anything_is_added(
    broker: Broker, flights: pa.Table
) -> None:
    await publish(broker.client_url, flights, 10)
    async with connect(broker.client_url) as connection:
        await connection.jetstream().publish("flights.JFK.N1", b"not a flight of the data set")
    with pytest.raises(DemoError, match="something else than these flights"):
        await publish(broker.client_url, flights, 20)


async def test_a_stream_made_for_something_else_is_not_used(
    broker: Broker, flights: pa.Table
) -> None:
    async with connect(broker.client_url) as connection:
        await connection.jetstream().create_stream(name=STREAM, subjects=("flights.>",))
    with pytest.raises(DemoError, match="--reset"):
        await publish(broker.client_url, flights, 20)


async def test_a_second_publisher_at_the_same_time_is_refused(
    broker: Broker, flights: pa.Table
) -> None:
    async with FlightStream(broker.client_url) as stream:
        await stream.prepare(flights)
        await publish(broker.client_url, flights, 100)
        with pytest.raises(DemoError, match="at the same time"):
            await stream.publish(flights, 0, 100, lambda messages: None)


async def test_a_server_that_is_not_there_is_an_error_of_the_client(
    free_port: int, flights: pa.Table
) -> None:
    with pytest.raises(ConnectFailedError):
        await publish(f"nats://127.0.0.1:{free_port}", flights, 10)


async def test_the_broker_of_this_process_needs_no_socket(flights: pa.Table) -> None:
    async with Embedded() as broker, FlightStream(broker.client_url, broker) as stream:
        assert await stream.prepare(flights) == 0
        await stream.publish(flights, 0, 500, lambda messages: None)
        assert await stream.prepare(flights) == 500
    with pytest.raises(ConnectionClosedError):
        async with FlightStream(broker.client_url, broker):
            """A stopped one has no other way in."""
