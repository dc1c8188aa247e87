"""Handlers whose messages and results are written by the schemas of a registry, on both servers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pydantic
import pytest

import guides
import peers
from headrace import ConsumerConfig, DeadLetter
from headrace.client import JetStream, Stream
from headrace.errors import ConfigurationError, JetStreamApiError
from headrace.groups import PartitioningFilter, elastic
from headrace.schemas.codecs import AvroCodec
from headrace.schemas.framing import confluent_head
from headrace.worker import Delivered, HttpRegistry, Schema, SchemaBucket, Worker, run
from registry_server import RegistryServer
from waiting import until

pytestmark = pytest.mark.peer

RECORD = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
    }
)
OBJECT = json.dumps(
    {
        "type": "object",
        "required": ["id", "item"],
        "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    }
)
AVRO = AvroCodec(RECORD.encode())


class Order(msgspec.Struct):
    id: int
    item: str


@dataclasses.dataclass
class Line:
    id: int
    item: str


class Model(pydantic.BaseModel):
    id: int
    item: str


class Small(msgspec.Struct):
    id: int
    item: bool


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    server.register("orders-value", RECORD, number=7)
    server.register("lines-value", OBJECT, number=8, kind="JSON")
    yield server
    server.stop()


@contextlib.asynccontextmanager
async def at_work(worker: Worker, url: str) -> AsyncIterator[asyncio.Event]:
    over = asyncio.Event()
    running = asyncio.create_task(run(worker, over, servers=url))
    try:
        yield over
    finally:
        over.set()
        await running


def more_of(name: str) -> dict[str, Any]:
    """What every handler of these tests is declared with."""
    return {
        "config": ConsumerConfig(filter_subject=f"{name}.orders", ack_wait=120),
        "on_failure": DeadLetter(f"{name}.dead", after=2, backoff=(0.01,)),
    }


async def letter_of(stream: Stream, name: str) -> Any:
    async def is_there() -> bool:
        try:
            await stream.get_last_message(f"{name}.dead")
        except JetStreamApiError:
            return False
        return True

    await until(is_there)
    return await stream.get_last_message(f"{name}.dead")


@pytest.mark.parametrize("kind", [Order, Line, Model, dict])
async def test_avro_with_confluents_bytes_becomes_the_model_on_the_loop_and_on_threads(
    reference_server: peers.ServerProcess,
    js: JetStream,
    stream: Stream,
    registry: RegistryServer,
    kind: Any,
) -> None:
    worker, name = Worker("avro"), stream.name
    schema = Schema(registry=HttpRegistry(url=registry.url))
    seen: list[Any] = []

    async def on_the_loop(order: Any, message: Delivered) -> None:
        seen.append(order)

    def on_a_thread(order: Any) -> None:
        seen.append(order)

    for function in (on_the_loop, on_a_thread):
        function.__annotations__["order"] = kind
        worker.consumer(name, function.__name__, schema=schema, **more_of(name))(function)
    async with at_work(worker, reference_server.url):
        for number in range(20):
            body = AVRO.write({"id": number, "item": "plum"})
            await js.publish(f"{name}.orders", confluent_head(7) + body)
        await until(lambda: len(seen) == 40)
    assert seen[0] == kind(id=0, item="plum")
    assert registry.asked == ["/schemas/ids/7"]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (confluent_head(7) + b"\x02", "schema 7: it is no such record"),
        (confluent_head(9) + b"\x02", "schema 9: no schema '9'"),
        (confluent_head(8) + b"{}", "schema 8: it is of type JSON, not AVRO"),
        (b"{}", "no zero byte and schema id"),
    ],
)
async def test_what_does_not_fit_becomes_a_dead_letter_at_once_that_says_the_schema(
    reference_server: peers.ServerProcess,
    js: JetStream,
    stream: Stream,
    registry: RegistryServer,
    payload: bytes,
    said: str,
) -> None:
    worker, name = Worker("misfits"), stream.name
    schema = Schema(registry=HttpRegistry(url=registry.url))

    @worker.consumer(name, "all", schema=schema, **more_of(name))
    async def handle(order: Order) -> None:
        raise AssertionError("it fits nothing")

    async with at_work(worker, reference_server.url):
        await js.publish(f"{name}.orders", payload)
        letter = await letter_of(stream, name)
    assert letter.payload == payload
    assert said in letter.headers["Headrace-Failure"]
    assert letter.headers["Headrace-Attempts"] == "1"


@pytest.mark.parametrize("said", ["abc", "4294967296", "7" * 5000, "a" * 5000])
async def test_a_header_that_names_no_schema_of_a_registry_keeps_no_other_message_waiting(
    reference_server: peers.ServerProcess,
    js: JetStream,
    stream: Stream,
    registry: RegistryServer,
    said: str,
) -> None:
    worker, name = Worker("headers"), stream.name
    schema = Schema(registry=HttpRegistry(url=registry.url), ids="header")
    seen: list[int] = []

    @worker.consumer(name, "all", schema=schema, **more_of(name))
    async def handle(order: Order) -> None:
        seen.append(order.id)

    body = AVRO.write({"id": 1, "item": "plum"})
    async with at_work(worker, reference_server.url):
        await js.publish(f"{name}.orders", body, headers={"schema-id": said})
        await js.publish(f"{name}.orders", body, headers={"schema-id": "7"})
        letter = await letter_of(stream, name)
        await until(lambda: seen == [1])
    assert "header schema-id is" in letter.headers["Headrace-Failure"]
    assert registry.asked == ["/schemas/ids/7"]


async def test_json_by_the_latest_schema_of_a_subject_names_the_field_and_the_model_that_does_not_fit(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream, registry: RegistryServer
) -> None:
    worker, name = Worker("json"), stream.name
    schema = Schema(registry=HttpRegistry(url=registry.url), format="json", subject="lines-value")
    seen: list[Any] = []

    @worker.consumer(name, "fits", schema=schema, **more_of(name))
    def handle(order: Order) -> None:
        seen.append(order)

    @worker.consumer(
        name,
        "none",
        schema=schema,
        config=ConsumerConfig(filter_subject=f"{name}.small", ack_wait=120),
        on_failure=DeadLetter(f"{name}.dead"),
    )
    def refuse(order: Small) -> None:
        raise AssertionError("an item is no bool")

    async with at_work(worker, reference_server.url):
        await js.publish(f"{name}.orders", b'{"id": 1, "item": "plum"}')
        await js.publish(f"{name}.orders", b'{"id": "x", "item": "plum"}')
        first = await letter_of(stream, name)
        await js.publish(f"{name}.small", b'{"id": 1, "item": "plum"}')

        async def is_second() -> bool:
            return bool((await letter_of(stream, name)).sequence != first.sequence)

        await until(is_second)
        second = await letter_of(stream, name)
        await until(lambda: bool(seen))
    assert seen == [Order(1, "plum")]
    assert "schema 8: $.id: " in first.headers["Headrace-Failure"]
    assert "schema 8: no Small" in second.headers["Headrace-Failure"]
    assert "$.item" in second.headers["Headrace-Failure"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_while_the_registry_is_away_messages_wait_and_none_is_a_dead_letter(
    reference_server: peers.ServerProcess,
    js: JetStream,
    stream: Stream,
    registry: RegistryServer,
    caplog: pytest.LogCaptureFixture,
    is_async: bool,
) -> None:
    caplog.set_level(logging.WARNING, "headrace.schemas")
    worker, name = Worker("away"), stream.name
    schema = Schema(registry=HttpRegistry(url=registry.url))
    seen: list[int] = []
    registry.faults += [503] * 4  # more than a message has attempts

    async def on_the_loop(order: Order) -> None:
        seen.append(order.id)

    def on_a_thread(order: Order) -> None:
        seen.append(order.id)

    function: Any = on_the_loop if is_async else on_a_thread
    worker.consumer(name, "waits", schema=schema, **more_of(name))(function)
    async with at_work(worker, reference_server.url):
        for number in range(3):
            body = AVRO.write({"id": number, "item": "plum"})
            await js.publish(f"{name}.orders", confluent_head(7) + body)
        await until(lambda: len(seen) == 3, within=30)
    assert seen == [0, 1, 2]
    assert (await stream.info()).state.messages == 3
    assert [record.message for record in caplog.records if "messages wait" in record.message] == [
        caplog.records[0].message
    ]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_member_of_a_group_reads_each_key_in_order_though_the_registry_was_away_and_one_does_not_fit(
    reference_server: peers.ServerProcess,
    js: JetStream,
    stream: Stream,
    registry: RegistryServer,
    is_async: bool,
) -> None:
    worker, name = Worker("member"), stream.name
    filters = [PartitioningFilter(f"{name}.orders.*", (1,))]
    await elastic.create(js, name, "g", 2, partitioning_filters=filters, members=["a"])
    seen: dict[str, list[int]] = {"plum": [], "pear": []}
    registry.faults += [503] * 4  # more than a message has attempts

    async def on_the_loop(order: Order) -> None:
        seen[order.item].append(order.id)

    def on_a_thread(order: Order) -> None:
        seen[order.item].append(order.id)

    worker.group(
        name,
        "g",
        member="a",
        schema=Schema(registry=HttpRegistry(url=registry.url)),
        on_failure=DeadLetter(f"{name}.dead", after=2, backoff=(0.01,)),
    )(on_the_loop if is_async else on_a_thread)
    async with at_work(worker, reference_server.url):
        for number in range(10):
            for item in seen:
                body = AVRO.write({"id": number, "item": item})
                await js.publish(f"{name}.orders.{item}", confluent_head(7) + body)
        await js.publish(f"{name}.orders.plum", confluent_head(7) + b"\x02")
        letter = await letter_of(stream, name)
        await until(lambda: sum(map(len, seen.values())) == 20)
    await elastic.delete(js, name, "g")
    assert seen == {"plum": list(range(10)), "pear": list(range(10))}
    assert "schema 7: it is no such record" in letter.headers["Headrace-Failure"]
    assert letter.headers["Headrace-Subject"] == f"{name}.orders.plum"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_worker_that_ends_while_the_registry_is_away_gives_its_messages_back(
    reference_server: peers.ServerProcess,
    js: JetStream,
    stream: Stream,
    registry: RegistryServer,
    is_async: bool,
) -> None:
    worker, name = Worker("ends"), stream.name
    schema = Schema(registry=HttpRegistry(url=registry.url))
    registry.faults += [503] * 1000

    async def on_the_loop(order: Order) -> None:
        raise AssertionError("nobody knows the schema")

    def on_a_thread(order: Order) -> None:
        raise AssertionError("nobody knows the schema")

    function: Any = on_the_loop if is_async else on_a_thread
    worker.consumer(name, "ends", schema=schema, **more_of(name))(function)
    async with at_work(worker, reference_server.url):
        await js.publish(f"{name}.orders", confluent_head(7) + b"\x02\x02a")
        await until(lambda: len(registry.asked) > 1)
    consumer = await stream.consumer("ends")
    message = await consumer.next(max_wait=60)  # ack_wait is two minutes
    assert message.metadata.delivered > 1
    assert (await stream.info()).state.messages == 1


async def test_schemas_of_a_bucket_are_found_by_the_header_and_results_are_written_by_a_key(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    worker, name = Worker("bucket"), stream.name
    bucket = await js.create_key_value(bucket=f"{name}-schemas", storage="memory")
    await bucket.put("orders.v1", RECORD.encode())
    await bucket.put("orders.lines", OBJECT.encode())
    where = SchemaBucket(bucket=f"{name}-schemas", prefix="orders")

    @worker.consumer(
        name,
        "all",
        schema=Schema(registry=where),
        publish=f"{name}.lines",
        returns=Schema(registry=where, format="json", subject="lines"),
        **more_of(name),
    )
    async def handle(order: Order) -> Line | dict[str, int]:
        return Line(order.id, order.item) if order.id == 1 else {"id": order.id}

    async with at_work(worker, reference_server.url):
        for number in (1, 2):
            await js.publish(
                f"{name}.orders",
                AVRO.write({"id": number, "item": "plum"}),
                headers={"schema-id": "v1"},
            )
        letter = await letter_of(stream, name)
        line = await stream.get_last_message(f"{name}.lines")
    assert json.loads(line.payload) == {"id": 1, "item": "plum"}
    assert line.headers["schema-id"] == "lines"
    assert "returned does not fit schema lines of lines: $" in letter.headers["Headrace-Failure"]
    assert "item" in letter.headers["Headrace-Failure"]
    await js.delete_key_value(f"{name}-schemas")


@pytest.mark.parametrize("is_async", [True, False])
async def test_results_are_avro_with_the_id_that_the_registry_gave(
    reference_server: peers.ServerProcess,
    js: JetStream,
    stream: Stream,
    registry: RegistryServer,
    is_async: bool,
) -> None:
    worker, name = Worker("results"), stream.name
    where = HttpRegistry(url=registry.url)

    async def on_the_loop(order: Order) -> Order:
        return order

    def on_a_thread(order: Order) -> Order:
        return order

    function: Any = on_the_loop if is_async else on_a_thread
    worker.consumer(
        name,
        "all",
        schema=Schema(registry=where),
        publish=f"{name}.copies",
        returns=Schema(registry=where, subject="orders-value"),
        **more_of(name),
    )(function)
    payload = confluent_head(7) + AVRO.write({"id": 3, "item": "plum"})
    async with at_work(worker, reference_server.url):
        await js.publish(f"{name}.orders", payload)

        async def is_there() -> bool:
            return (await stream.info()).state.messages == 2

        await until(is_there)
        copy = await stream.get_last_message(f"{name}.copies")
    assert copy.payload == payload


def test_what_fits_no_handler_is_refused_when_it_is_declared() -> None:
    worker = Worker("w")
    where = HttpRegistry(url="http://registry:8081/")
    assert where.url == "http://registry:8081"
    dead = DeadLetter("dead")

    def takes_message(message: Delivered) -> None: ...
    def takes_text(text: str) -> None: ...
    def takes_order(order: Order) -> None: ...

    cases: list[tuple[Any, dict[str, Any], str]] = [
        (takes_message, {"schema": Schema(registry=where)}, "takes a value"),
        (takes_text, {"schema": Schema(registry=where)}, "accepted are bytes"),
        (
            takes_order,
            {"schema": Schema(registry=where, subject="s", ids="header")},
            "both subject and ids",
        ),
        (takes_order, {"returns": Schema(registry=where)}, "no subject"),
        (takes_order, {"returns": Schema(registry=where, subject="s")}, "needs publish"),
        (takes_order, {"schema": "s"}, "accepted is a Schema"),
    ]
    for function, more, said in cases:
        with pytest.raises(ConfigurationError, match=said):
            worker.consumer("S", "c", on_failure=dead, **more)(function)
    with pytest.raises(ConfigurationError, match="DeadLetter"):
        worker.consumer("S", "c", publish="p", returns=Schema(registry=where, subject="s"))(
            takes_message
        )
    for make, said in (
        (lambda: HttpRegistry(url="registry"), "a URL such as"),
        (lambda: HttpRegistry(url="http://r", password="x"), "needs user"),
        (lambda: SchemaBucket(bucket=""), "name of a bucket"),
        (lambda: Schema(registry=where, format="xml"), "accepted: avro, json"),  # type: ignore[arg-type]
        (lambda: Schema(registry=where, ids="magic"), "accepted: confluent"),  # type: ignore[arg-type]
        (
            lambda: Schema(registry=SchemaBucket(bucket="b"), subject="s", ids="confluent"),
            "no numbers",
        ),
    ):
        with pytest.raises(ConfigurationError, match=said):
            make()
    assert "secret" not in repr(HttpRegistry(url="http://r", user="u", password="secret"))


async def test_the_program_of_the_page_reads_by_the_messages_schema_and_writes_by_its_own(
    reference_server: peers.ServerProcess, js: JetStream, registry: RegistryServer
) -> None:
    blocks = guides.blocks_of(guides.ROOT / "docs" / "worker.md")
    (block,) = [each for each in blocks if "HttpRegistry" in each.code]
    code = block.code.replace("https://registry.example.com:8081", registry.url)
    names: dict[str, Any] = {}
    await guides.run_block(block._replace(code=code), names)
    registry.login = "key:secret"
    kinds = {"order": {"type": "integer"}, "amount": {"type": "integer"}}
    invoice = json.dumps({"type": "object", "properties": kinds})
    registry.register("invoices-value", invoice, number=9, kind="JSON")
    orders = await js.create_stream(name="ORDERS", subjects=["orders"])
    await orders.create_consumer(durable_name="billing")
    results = await js.create_stream(
        name="RESULTS", subjects=["shop.invoices.new", "shop.dead.billing"]
    )
    async with at_work(names["worker"], reference_server.url):
        await js.publish("orders", confluent_head(7) + AVRO.write({"id": 4, "item": "plum"}))
        await js.publish("orders", confluent_head(7) + b"\x02")

        async def are_both() -> bool:
            return (await results.info()).state.messages == 2

        await until(are_both)
    written = (await results.get_last_message("shop.invoices.new")).payload
    letter = await results.get_last_message("shop.dead.billing")
    for name in ("ORDERS", "RESULTS"):
        await js.delete_stream(name)
    assert written == confluent_head(9) + b'{"order":4,"amount":5}'
    assert "schema 7" in letter.headers["Headrace-Failure"]
