"""From a stream into a channel, and outcomes back into a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import pytest

from feed_world import Feeding
from headrace.cli import main
from headrace.client import JetStream, Stream, connect
from headrace.documents import DocumentError
from headrace.errors import ProtocolError
from headrace.jobs import ids, limits
from headrace.jobs.client import AsyncJobsClient
from headrace.jobs.config import FeedConfig, OutcomesConfig
from headrace.jobs.http.app import ENDPOINTS
from headrace.jobs.runtime.parts import reason_of
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service import feeds
from headrace.jobs.store import Tx
from headrace.jobs.streams.feed import feed_channel
from headrace.jobs.streams.outcomes import publish_outcomes
from jobs_world import World, held
from waiting import elapse, until

if TYPE_CHECKING:
    from headrace.broker.server import Broker

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def until_queued(world: World, count: int) -> list[dict[str, Any]]:
    async def are_there() -> list[dict[str, Any]]:
        found = await world.queued(100)
        return found if len(found) >= count else []

    return await until(are_there, f"never {count} jobs", within=15)


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def publish(js: JetStream, first: int, last: int) -> None:
    for number in range(first, last):
        await js.publish(
            f"orders.{number % 2}",
            b"%d" % number,
            headers={"Content-Type": "text/plain", "X-T": "1", "traceparent": TRACE},
        )


async def test_each_sequence_becomes_one_message_across_crashes(
    world: World, broker: Broker
) -> None:
    async with connect(broker.client_url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=("orders.>",))
        config = FeedConfig(
            channel="c", stream="ORDERS", url=broker.client_url, filter="orders.1", batch=4
        )
        await publish(js, 0, 20)
        feeding = asyncio.create_task(feed_channel(world.runtime, config))
        jobs = await until_queued(world, 10)
        await stop(feeding)
        assert [job["Message"]["Payload"] for job in jobs] == [str(n) for n in range(1, 20, 2)]
        headers = jobs[0]["Message"]["Headers"]
        assert (headers["X-T"], headers["X-Headrace-Subject"], headers["X-Headrace-Sequence"]) == (
            "1",
            "orders.1",
            "2",
        )
        assert headers["traceparent"] == TRACE
        assert jobs[0]["Message"]["ContentType"] == "text/plain"
        # The acknowledgements are lost: everything comes again.
        await stream.delete_consumer(config.group)
        await publish(js, 20, 24)
        feeding = asyncio.create_task(feed_channel(world.runtime, config))
        jobs = await until_queued(world, 12)
        await elapse(0.3, "what comes twice would be there now")
        await stop(feeding)
        assert len(await world.queued(100)) == 12
        # Made anew, its sequences begin anew, and are other messages.
        await stream.delete()
        await js.create_stream(name="ORDERS", subjects=("orders.>",))
        await publish(js, 0, 4)
        feeding = asyncio.create_task(feed_channel(world.runtime, config))
        await until_queued(world, 14)
        await stop(feeding)


@pytest.mark.one_database
async def test_a_feed_waits_for_a_stream_that_is_not_there(world: World, broker: Broker) -> None:
    config = FeedConfig(channel="c", stream="LATER", url=broker.client_url)
    feeding = asyncio.create_task(feed_channel(world.runtime, config))
    await until(lambda: "feed c" in world.runtime.parts.failing, "it does not miss the stream")
    async with connect(broker.client_url) as connection:
        js = connection.jetstream()
        await js.create_stream(name="LATER", subjects=("later",))
        await js.publish("later", b"x")
        await until_queued(world, 1)
    await stop(feeding)


async def test_outcomes_are_published_once_in_order(world: World, broker: Broker) -> None:
    await world.http.patch("/v2/channel/c/consumer/k", json={"settings": {"outcomes": True}})
    for number in range(3):
        await world.broadcast(X_Broker_Message_ID=f"m{number}")
    a, b, _ = await world.claim(3)
    await world.lease("complete", jobs=held(a))
    await world.lease("fail", jobs=[{**held(b)[0], "dead": True, "reason": "no"}])
    async with connect(broker.client_url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="OUT", subjects=("out",))
        config = OutcomesConfig(url=broker.client_url, subject="out")
        publishing = asyncio.create_task(publish_outcomes(world.runtime, config))

        async def both() -> bool:
            return (await stream.info()).state.messages >= 2

        await until(both, "the outcomes do not come", within=15)
        found = [json.loads((await stream.get_message(n)).payload) for n in (1, 2)]
        assert [(one["message"], one["state"], one["error"]) for one in found] == [
            ("m0", "DELIVERED", None),
            ("m1", "DEAD", "no"),
        ]

        async def all_out() -> bool:
            left = await world.runtime.database.read(lambda tx: tx.all("list_outcomes", n=5))
            return not left

        await until(all_out, "outcomes are left")
        await stop(publishing)
        assert (await stream.info()).state.messages == 2


async def made(js: JetStream, **settings: Any) -> Stream:
    return await js.create_stream(name="ORDERS", subjects=("orders.>",), **settings)


@asynccontextmanager
async def at(url: str) -> AsyncIterator[JetStream]:
    async with connect(url) as connection:
        yield connection.jetstream()


async def settle(world: World, *payloads: str, consumer: str = "k") -> None:
    """Complete the jobs with these payloads, and leave the others."""
    jobs = await world.claim(100, consumer=consumer)
    done = [job for job in jobs if job["message"]["payload"] in payloads]
    await world.lease("complete", jobs=held(*done), consumer=consumer)
    rest = [job for job in jobs if job not in done]
    if rest:
        await world.lease("release", jobs=held(*rest), consumer=consumer)


@pytest.mark.parametrize(
    ("rule", "keys"),
    [
        ("", [None, None]),
        ("subject", ["orders.eu.7", "orders.us"]),
        ("subject:3", ["7", None]),
        ("header:customer", ["Ann", None]),
    ],
)
@pytest.mark.one_database
async def test_the_ordering_key_is_of_the_subject_or_of_a_header(
    world: World, broker_url: str, rule: str, keys: list[str | None]
) -> None:
    feeding = Feeding(world, broker_url, ordering_key=rule)
    async with at(broker_url) as js, feeding.running():
        await made(js)
        await js.publish("orders.eu.7", b"1", headers={"Customer": "Ann"})
        await js.publish("orders.us", b"2")
        await feeding.until_payloads(["1", "2"])
    assert [row["ordering_key"] for row in await feeding.rows("job")] == keys


async def test_text_of_headers_goes_on_as_it_is_and_what_no_header_carries_is_left_out(
    world: World, broker_url: str
) -> None:
    feeding = Feeding(world, broker_url)
    async with at(broker_url) as js, feeding.running():
        await made(js)
        headers = {"X-Name": "заказ \u20ac5 Zo\u00eb", "X-Bell": "a\x07", "X-\u20ac": "b"}
        await js.publish("orders.a", b"1", headers=headers)
        await feeding.until_payloads(["1"])
    (row,) = await feeding.rows("message")
    assert json.loads(row["headers"]) == {
        "X-Name": "заказ \u20ac5 Zo\u00eb",
        "X-Headrace-Headers-Left-Out": "2",
        "X-Headrace-Subject": "orders.a",
        "X-Headrace-Sequence": "1",
    }


async def publish_raw(url: str, subject: str, customer: str, payloads: list[bytes]) -> None:
    """Publish what our own client refuses to."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n')
    block = b"NATS/1.0\r\nCustomer: %b\r\n\r\n" % customer.encode()
    for payload in payloads:
        sizes = len(block), len(block) + len(payload)
        writer.write(b"HPUB %b %d %d\r\n" % (subject.encode(), *sizes) + block + payload + b"\r\n")
    writer.write(b"PING\r\n")
    while (line := await reader.readline()) != b"PONG\r\n":
        assert line.startswith(b"INFO"), line
    writer.close()


@pytest.mark.parametrize("rule", ["subject", "header:customer"])
async def test_what_no_header_carries_of_a_subject_or_an_ordering_key_is_replaced(
    world: World, broker_url: str, rule: str
) -> None:
    feeding = Feeding(world, broker_url, ordering_key=rule)
    odd = "orders.\x1b[2J\x0b\x7fé"
    async with at(broker_url) as js, feeding.running():
        await made(js)
        await publish_raw(broker_url, odd, odd, [b"1", b"2"])
        await feeding.until_payloads(["1", "2"])
    seen = "orders.\ufffd[2J\ufffd\ufffdé"
    for row in await feeding.rows("message"):
        stored = json.loads(row["headers"])
        assert stored["X-Headrace-Subject"] == seen
        ids.check_header("X-Headrace-Subject", stored["X-Headrace-Subject"], "")
    assert {row["ordering_key"] for row in await feeding.rows("job")} == {seen}
    assert len(await world.claim(10)) == 1, "one after the other, as of any key"


@pytest.mark.one_database
async def test_headers_of_the_broker_and_of_the_service_are_not_passed_on(
    world: World, broker_url: str
) -> None:
    feeding = Feeding(world, broker_url)
    async with at(broker_url) as js, feeding.running():
        await made(js, allow_rollup_hdrs=True)
        headers = {"Nats-Rollup": "sub", "X-Broker-Subject": "x", "Authorization": "x", "X-T": "1"}
        await js.publish("orders.a", b"1", headers=headers, msg_id="id")
        await feeding.until_payloads(["1"])
    (row,) = await feeding.rows("message")
    assert json.loads(row["headers"]) == {
        "X-T": "1",
        "X-Headrace-Subject": "orders.a",
        "X-Headrace-Sequence": "1",
    }


async def test_a_full_channel_stops_the_feed_and_not_the_stream(
    world: World, broker_url: str
) -> None:
    feeding = Feeding(world, broker_url, batch=2, unfinished_max=3)
    async with at(broker_url) as js:
        await made(js)
        for number in range(1, 9):
            await js.publish("orders.a", b"%d" % number)
    async with at(broker_url) as js, feeding.running():
        stream = await js.stream("ORDERS")
        shown = await feeding.until_state("backlog")
        assert (shown["unfinished"], shown["unfinished_max"], shown["lag"]) == (4, 3, 4)
        labels = (("channel", "c"), ("feed", "ORDERS"))
        metrics = world.runtime.metrics
        assert metrics.numbers("jobs_feed_blocked") == {labels: 1}
        assert metrics.numbers("jobs_feed_lag") == {labels: 4}
        assert metrics.numbers("jobs_feed_sequence") == {labels: 4}
        assert (await stream.info()).state.messages == 8
        assert await feeding.payloads() == ["1", "2", "3", "4"]
        await settle(world, "1", "2")
        await feeding.until_payloads(["1", "2", "3", "4", "5", "6"])
        await settle(world, "3", "4", "5", "6")
        await feeding.until_payloads([str(number) for number in range(1, 9)])


async def test_jobs_are_made_again_from_a_sequence_for_all_consumers(
    world: World, broker_url: str
) -> None:
    feeding = Feeding(world, broker_url)
    async with at(broker_url) as js, feeding.running():
        await made(js)
        for number in range(1, 6):
            await js.publish("orders.a", b"%d" % number)
        await feeding.until_payloads(["1", "2", "3", "4", "5"])
        await settle(world, "1", "2", "3")
        path = "/v2/channel/c/jobs/cancel"
        four = (await feeding.rows("message"))[3]["message_id"]
        await world.http.post(path, json={"message": four})
        await world.consumer("late", type="pull", token="kt")
        answer = await world.http.post("/v2/channel/c/feed/ORDERS/again", json={"sequence": 2})
        assert (answer.status_code, answer.json()["again_sequence"]) == (200, 2)

        async def again() -> bool:
            return len(await feeding.waiting("late")) == 4

        await until(again, "nothing is made again", within=15)
        assert await feeding.waiting("late") == ["2", "3", "4", "5"]
        assert await feeding.waiting("k") == ["2", "3", "5"]
        await js.publish("orders.a", b"6")

        async def went_on() -> bool:
            return await feeding.waiting("k") == ["2", "3", "5", "6"]

        await until(went_on, "it does not go on", within=15)
    assert len(await feeding.rows("message")) == 6
    assert await feeding.events() == ["feed_again"]


async def test_jobs_are_made_again_from_the_beginning_or_from_a_time(
    world: World, broker_url: str
) -> None:
    feeding = Feeding(world, broker_url)
    async with at(broker_url) as js:
        stream = await made(js)
        for number in range(1, 4):
            await js.publish("orders.a", b"%d" % number)
        async with feeding.running():
            await feeding.until_at(3)
        await settle(world, "1", "2", "3")
        second = (await stream.get_message(2)).timestamp_ns
        since = datetime.fromtimestamp(second // 1000 / 1e6, UTC).isoformat()
        path = "/v2/channel/c/feed/ORDERS/again"
        assert (await world.http.post(path, json={"since": since})).status_code == 200
        async with feeding.running():
            await until(lambda: _waits(feeding, ["2", "3"]), "not from the time", within=15)
        await settle(world, "2", "3")
        assert (await world.http.post(path, json={"sequence": 1})).status_code == 200
        async with feeding.running():
            await until(lambda: _waits(feeding, ["1", "2", "3"]), "not all", within=15)


async def _waits(feeding: Feeding, payloads: list[str]) -> bool:
    return await feeding.waiting("k") == payloads


@pytest.mark.one_database
async def test_a_place_that_cannot_be_is_refused(world: World, broker_url: str) -> None:
    feeding = Feeding(world, broker_url)
    path = "/v2/channel/c/feed/ORDERS/again"

    async def refused(body: dict[str, Any], path: str = path) -> tuple[int, str]:
        answer = await world.http.post(path, json=body)
        return answer.status_code, answer.json()["code"]

    assert await refused({"sequence": 1}) == (404, "not_found")
    assert await refused({"sequence": 1}, "/v2/channel/no/feed/x/again") == (404, "not_found")
    async with at(broker_url) as js, feeding.running():
        await made(js, retention="workqueue")
        await js.publish("orders.a", b"1")
        await feeding.until_state("feeding")
        assert await refused({}) == (400, "no_place")
        assert await refused({"sequence": 1, "since": "2026-01-01T00:00:00Z"}) == (
            400,
            "two_places",
        )
        assert await refused({"sequence": 0}) == (400, "invalid_sequence")
        assert await refused({"since": "yesterday"}) == (400, "invalid_time")
        assert await refused({"sequence": 1, "stream": "PAYROLL"}) == (400, "invalid_body")
        assert await refused({"sequence": 1}) == (409, "stream_keeps_nothing")


async def test_one_process_feeds_and_another_goes_on_where_it_was(
    world: World, broker_url: str, service_on: Callable[..., Runtime]
) -> None:
    feeding = Feeding(world, broker_url)
    other = service_on(clock=world.clock)
    await other.start()
    try:
        async with at(broker_url) as js:
            await made(js)
            async with feeding.running():
                await js.publish("orders.a", b"1")
                await feeding.until_payloads(["1"])
                async with feeding.running(other):
                    await js.publish("orders.a", b"2")
                    await feeding.until_payloads(["1", "2"])
                    assert other.metrics.numbers("jobs_published_total") == {}
            async with feeding.running(other):
                await js.publish("orders.a", b"3")
                await feeding.until_payloads(["1", "2", "3"])
                assert sum(other.metrics.numbers("jobs_published_total").values()) == 1
    finally:
        await other.close()


@pytest.mark.one_database
async def test_a_feed_that_fails_says_why_and_one_that_nobody_feeds_is_away(
    world: World, broker_url: str
) -> None:
    feeding = Feeding(world, broker_url)
    async with feeding.running():
        shown = await feeding.until_state("failing")
        assert "ORDERS" in shown["problem"]
    world.clock.advance(120)
    (shown,) = (await world.http.get("/v2/feeds")).json()["feeds"]
    assert shown["state"] == "away"


def test_an_answer_that_is_not_understood_is_not_quoted() -> None:
    secret = "the payload of another stream"
    for error in (ProtocolError(f"the answer is {secret}"), DocumentError(secret)):
        assert secret not in reason_of(error)


def test_no_operation_lets_a_key_name_a_stream_or_a_subject_of_the_broker() -> None:
    named = {"stream", "streams", "durable", "group", "url", "servers"}
    asked = {
        (endpoint.path, field.name)
        for endpoint in ENDPOINTS
        if endpoint.body is not None
        for field in msgspec.structs.fields(endpoint.body)
    }
    asked |= {(each.path, field.name) for each in ENDPOINTS for field in each.form}
    assert not {field for _, field in asked} & named


@pytest.mark.one_database
async def test_the_command_shows_feeds_and_makes_jobs_again(
    world: World, address: str, broker_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    feeding = Feeding(world, broker_url)

    async def typed(*words: str, expect: int = 0) -> str:
        status = await asyncio.to_thread(main, ["jobs", "feed", *words, "--url", address])
        told = capsys.readouterr()
        assert status == expect, told
        return told.out if not expect else told.err

    assert "[[feeds]]" in await typed()
    async with at(broker_url) as js, feeding.running():
        await made(js)
        await js.publish("orders.a", b"1")
        await feeding.until_payloads(["1"])
        await feeding.until_state("feeding")
        assert "c/ORDERS" in await typed()
        assert json.loads(await typed("c", "ORDERS", "--json"))[0]["sequence"] == 1
        await settle(world, "1")
        assert "goes back to sequence 1" in await typed("c", "--again-from", "1")
        await until(lambda: _waits(feeding, ["1"]), "not again", within=15)
        both = ("--again-from", "1", "--again-since", "2026-01-01T00:00:00Z")
        assert "exclude each other" in await typed("c", *both, expect=1)
        assert "need the name of a CHANNEL" in await typed("--again-from", "1", expect=1)
        assert "has no feed" in await typed("c", "other", expect=1)
        assert "no such channel" in await typed("none", expect=1)


@pytest.mark.one_database
async def test_the_client_lists_feeds_and_makes_jobs_again(
    world: World, address: str, broker_url: str
) -> None:
    feeding = Feeding(world, broker_url)
    async with at(broker_url) as js, feeding.running(), AsyncJobsClient(address) as client:
        await made(js)
        await js.publish("orders.a", b"1")
        await feeding.until_state("feeding")
        (shown,) = await client.feeds()
        assert await client.feeds("c") == [shown]
        assert (shown["channel"], shown["feed"], shown["group"]) == ("c", "ORDERS", "headrace-jobs")
        asked = await client.feed_again("c", "ORDERS", since="2026-01-31T00:00:00Z")
        assert asked["again_since"] == "2026-01-31T00:00:00Z"


@pytest.mark.one_database
async def test_of_large_messages_fewer_are_taken_at_a_time(
    world: World, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def take(tx: Tx, feed: feeds.Feed, node: str, messages: Any) -> feeds.Taken:
        taken.append(len(messages))
        return stored(tx, feed, node, messages)

    stored = feeds.take
    monkeypatch.setattr(feeds, "take", take)
    monkeypatch.setattr(limits, "FEED_BYTES_MAX", 3000)
    feeding = Feeding(world, broker_url)
    payloads = ["x" * 900 + str(number) for number in range(9)] + ["y" * 4000, "z"]
    async with at(broker_url) as js:
        await made(js)
        for payload in payloads:
            await js.publish("orders.a", payload.encode())
        async with feeding.running():
            await feeding.until_payloads(payloads)
    assert 1 < max(taken) <= 3


@pytest.mark.one_database
async def test_a_work_queue_that_was_asked_to_go_back_before_it_was_known_goes_on(
    world: World, broker_url: str
) -> None:
    feeding = Feeding(world, broker_url)
    await world.runtime.database.write(
        lambda tx: tx.run("begin_feed", channel_id="c", feed_id="ORDERS", stream="ORDERS")
    )
    answer = await world.http.post("/v2/channel/c/feed/ORDERS/again", json={"sequence": 1})
    assert answer.status_code == 200
    async with at(broker_url) as js, feeding.running():
        await made(js, retention="workqueue")
        await js.publish("orders.a", b"1")
        await feeding.until_payloads(["1"])
        shown = await feeding.until_state("feeding")
    assert shown["again_sequence"] is None
    assert sorted(await feeding.events()) == ["feed_again", "feed_moved"]
