"""Push delivery, end to end on the loopback: schedules, isolation, breaker, headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from headrace.clock import ManualClock
from headrace.jobs import limits
from headrace.jobs.models import ClaimedJob, Consumer
from headrace.jobs.push.attempt import retry_after_s
from headrace.jobs.push.breaker import Ceiling
from headrace.jobs.push.engine import PushEngine
from headrace.jobs.push.guard import Guard
from headrace.jobs.push.lane import Lane
from headrace.jobs.push.sender import Sender
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.definitions.consumers import find_consumer
from headrace.jobs.service.leases import Claim
from headrace.jobs.signature import WebhookVerificationError, verify
from headrace.jobs.store import Tx
from jobs_endpoint import Call, Endpoint, answer
from jobs_world import PRODUCER, World
from waiting import elapse
from waiting import until as eventually


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


@pytest.fixture
async def pushing(world: World) -> AsyncIterator[World]:
    """The world with a running push engine."""
    engine = world.engine = PushEngine(world.runtime)
    task = asyncio.create_task(engine.run())
    yield world
    engine.stop()
    async with asyncio.timeout(10):
        await task


async def push_to(world: World, endpoint: Endpoint, name: str = "h", **settings: Any) -> None:
    await world.consumer(name, callbackUrl=endpoint.url, token="ht")
    if settings:
        response = await world.http.patch(
            f"/v2/channel/c/consumer/{name}", json={"settings": settings}
        )
        assert response.status_code == 200, response.text

        async def known() -> bool:
            assert world.engine is not None
            served = world.engine.consumers.get(f"c/{name}")
            return served is not None and served.settings == expected

        row = await world.runtime.database.read(lambda tx: find_consumer(tx, "c", name))
        expected = row.settings
        await until(world, known)


async def until(world: World, check: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """Let lanes look again until ``check`` (a coroutine function) is true."""
    async with asyncio.timeout(timeout_s):
        while True:
            found = await check()
            if found:
                return found
            world.runtime.waiters.ring(())
            await asyncio.sleep(0.005)


async def counts(world: World, name: str = "h") -> dict[str, int]:
    body = (await world.http.get(f"/v2/channel/c/consumer/{name}")).json()
    return {state: n for state, n in body["jobs"].items() if n}


async def settled(world: World, expected: dict[str, int], name: str = "h") -> None:
    async def check() -> bool:
        return await counts(world, name) == expected

    await until(world, check)


async def jobs_of(world: World, message: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await world.http.get(f"/channel/c/message/{message}")).json()[
        "Jobs"
    ]
    return found


async def signed_by(world: World, endpoint: Endpoint, secret: str) -> Call:
    """The first message signed by a new secret; what is on its way when that comes has the one before."""
    for number in range(2, 50):
        await world.broadcast(f"message {number}")
        call = (await endpoint.wait_for(number))[-1]
        try:
            verify([secret], call.headers, call.body, world.runtime.now_us() / 1e6)
        except WebhookVerificationError:
            await settled(world, {"DELIVERED": number})
        else:
            return call
    raise AssertionError("nothing is signed by the new secret")


async def test_a_message_arrives_with_everything_said_about_it(
    pushing: World, endpoint: Endpoint
) -> None:
    await push_to(pushing, endpoint)
    await pushing.broadcast(
        '{"a":1}',
        Content_Type="application/json",
        X_Broker_Message_ID="m.1",
        X_Broker_Message_Priority="3",
        X_Broker_Metadata_Headers="X-Tenant,x-other",
        X_Tenant="t",
        X_Other="o",
    )
    call = (await endpoint.wait_for(1))[0]
    assert call.body == b'{"a":1}'
    assert {name: call.headers[name] for name in (
        "content-type", "x-broker-message-id", "x-broker-message-priority", "x-broker-channel-id",
        "x-broker-consumer-id", "x-broker-consumer-token", "x-broker-attempt", "x-tenant", "x-other",
        "x-broker-metadata-headers",
    )} == {
        "content-type": "application/json",
        "x-broker-message-id": "m.1",
        "x-broker-message-priority": "3",
        "x-broker-channel-id": "c",
        "x-broker-consumer-id": "h",
        "x-broker-consumer-token": "ht",
        "x-broker-attempt": "1",
        "x-tenant": "t",
        "x-other": "o",
        "x-broker-metadata-headers": "X-Tenant,x-other",
    }  # fmt: skip
    secret = (await pushing.http.post("/v2/channel/c/consumer/h/secret", json={})).json()["secret"]
    await settled(pushing, {"DELIVERED": 1})
    signed = await signed_by(pushing, endpoint, secret)
    assert signed.headers["webhook-id"] != call.headers["webhook-id"]


async def test_text_of_headers_is_sent_as_utf8(pushing: World, endpoint: Endpoint) -> None:
    await push_to(pushing, endpoint)
    text = "заказ \u20ac5 Zo\u00eb"
    message = {
        "payload": "x",
        "headers": {"X-Name": text},
        "subject": "Zo\u00eb",
        "ordering_key": text,
    }
    path = "/v2/channel/c/messages/batch"
    answer = await pushing.http.post(path, json={"messages": [message]}, headers=PRODUCER)
    assert answer.status_code == 201, answer.text
    (call,) = await endpoint.wait_for(1)
    sent = {name: value.encode("latin-1").decode() for name, value in call.headers.items()}
    assert (sent["x-name"], sent["x-broker-ordering-key"]) == (text, text)
    assert sent["x-headrace-subject"] == "Zo\u00eb"


async def test_a_failing_endpoint_is_called_by_the_schedule_and_then_given_up(
    pushing: World, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(404, b"not here")
    await push_to(pushing, endpoint)
    await pushing.broadcast(X_Broker_Message_ID="m")
    for number, delay in enumerate([5, 30, 60, 120, 180], 1):
        await endpoint.wait_for(number)
        await settled(pushing, {"QUEUED": 1})
        pushing.clock.advance(delay - 0.1)
        pushing.runtime.waiters.ring(())
        await elapse(0.05, "another call would come now")
        assert len(endpoint.calls) == number
        pushing.clock.advance(0.2)
        pushing.runtime.waiters.ring(())
    await endpoint.wait_for(6)
    await settled(pushing, {"DEAD": 1})
    ids = {call.headers["webhook-id"] for call in endpoint.calls}
    assert len(ids) == 1, "the id of an event is the same in every attempt"
    assert [call.headers["x-broker-attempt"] for call in endpoint.calls] == list("123456")
    dead = (await pushing.http.get("/channel/c/consumer/h/dlq")).json()["DeadJobs"][0]
    assert dead["LastError"] == "the endpoint answered 404"
    job = dead["JobRequeueURL"].split("/")[-2]
    attempts = (await pushing.job(job, "h"))["attempts"]
    assert [(one["kind"], one["status"], one["excerpt"]) for one in attempts] == [
        ("push", 404, "not here")
    ] * 6
    endpoint.respond = lambda call: answer()
    tokens = {"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "ht"}
    assert (await pushing.http.post(dead["JobRequeueURL"], headers=tokens)).status_code == 202
    await endpoint.wait_for(7)
    await settled(pushing, {"DELIVERED": 1})


async def test_one_slow_endpoint_starves_no_other(pushing: World, endpoint: Endpoint) -> None:
    async with Endpoint(delay_s=30) as slow:
        await push_to(pushing, slow, "slow", concurrency=4)
        await push_to(pushing, endpoint, concurrency=4)
        for number in range(40):
            await pushing.broadcast(str(number))
        calls = await endpoint.wait_for(40)
        assert sorted(int(call.body) for call in calls) == [*range(40)]
        assert endpoint.most_at_once <= 4
        assert slow.running == 4
        await settled(pushing, {"DELIVERED": 40})
        assert (await counts(pushing, "slow"))["QUEUED"] == 36
        slow.delay_s = 0
        slow.cut()


@pytest.mark.one_database
async def test_a_rate_limit_is_kept(pushing: World, endpoint: Endpoint) -> None:
    await push_to(pushing, endpoint, rate_per_s=5)
    await asyncio.sleep(0)
    for number in range(12):
        await pushing.broadcast(str(number))
    await endpoint.wait_for(5)
    await settled(pushing, {"DELIVERED": 5, "QUEUED": 7})
    pushing.clock.advance(0.4)
    await settled(pushing, {"DELIVERED": 7, "QUEUED": 5})
    pushing.clock.advance(10)
    await settled(pushing, {"DELIVERED": 12})


async def test_the_breaker_opens_probes_and_closes(pushing: World, endpoint: Endpoint) -> None:
    endpoint.respond = lambda call: answer(500)
    await push_to(pushing, endpoint, breaker={"failures": 3, "open_s": 30}, concurrency=1)
    for number in range(6):
        await pushing.broadcast(str(number))
    await endpoint.wait_for(3)
    await elapse(0.05, "another call would come now")
    assert len(endpoint.calls) == 3, "the breaker is open"
    pushing.clock.advance(30.5)
    pushing.runtime.waiters.ring(())
    await endpoint.wait_for(4)

    async def open_again() -> bool:
        text = (await pushing.http.get("/metrics")).text
        return 'push_breaker_state{channel="c",consumer="h"} 2' in text

    await until(pushing, open_again)
    assert len(endpoint.calls) == 4, "one probe"
    endpoint.respond = lambda call: answer(200)

    async def all_delivered() -> bool:
        pushing.clock.advance(5)
        return await counts(pushing) == {"DELIVERED": 6}

    await until(pushing, all_delivered)


@pytest.mark.one_database
async def test_a_lane_whose_claim_was_by_an_old_definition_claims_again_when_it_learns_the_new_one(
    world: World, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_S", 60.0)
    await world.consumer("h", callbackUrl=endpoint.url, token="ht")

    def found(tx: Tx) -> Consumer:
        return find_consumer(tx, "c", "h")

    runtime = world.runtime
    claims: list[int] = []
    claim = runtime.claim

    async def counted(wanted: Claim) -> tuple[Consumer, list[ClaimedJob]]:
        consumer, jobs = await claim(wanted)
        claims.append(len(jobs))
        return consumer, jobs

    monkeypatch.setattr(runtime, "claim", counted)
    before = await runtime.database.read(found)
    changed = await world.http.patch(
        "/v2/channel/c/consumer/h", json={"settings": {"concurrency": 1}}
    )
    assert changed.status_code == 200
    await world.broadcast()
    sender = Sender(Guard(runtime.options.allow_networks), runtime.clock)
    lane = Lane(runtime, before, sender, Ceiling(20))
    serving = asyncio.create_task(lane.run())
    try:
        await eventually(lambda: claims == [0])
        lane.refresh(await runtime.database.read(found))
        await endpoint.wait_for(1)
    finally:
        lane.stop()
        async with asyncio.timeout(10):
            await serving
        sender.close()
    assert claims[1] == 1


@pytest.mark.one_database
async def test_retry_after_spares_the_endpoint(pushing: World, endpoint: Endpoint) -> None:
    endpoint.respond = lambda call: answer(429, Retry_After="100")
    await push_to(pushing, endpoint, concurrency=1)
    await pushing.broadcast("0")
    await endpoint.wait_for(1)
    await settled(pushing, {"QUEUED": 1})
    await pushing.broadcast("1")
    pushing.clock.advance(99)
    pushing.runtime.waiters.ring(())
    await elapse(0.05, "another call would come now")
    assert len(endpoint.calls) == 1
    endpoint.respond = lambda call: answer(200)
    pushing.clock.advance(2)
    await settled(pushing, {"DELIVERED": 2})


async def test_a_gone_endpoint_is_disabled_with_an_event_and_can_be_enabled(
    pushing: World, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(410)
    await push_to(pushing, endpoint)
    await pushing.broadcast()
    await endpoint.wait_for(1)
    path = "/v2/channel/c/consumer/h"

    async def disabled() -> Any:
        return (await pushing.http.get(path)).json()["disabled_reason"]

    assert "410" in await until(pushing, disabled)
    event = (await pushing.http.get("/v2/events")).json()["events"][0]
    assert (event["kind"], event["channel"], event["consumer"]) == ("consumer_disabled", "c", "h")
    await pushing.broadcast()
    pushing.clock.advance(1000)
    pushing.runtime.waiters.ring(())
    await elapse(0.05, "another call would come now")
    assert len(endpoint.calls) == 1
    endpoint.respond = lambda call: answer(200)
    await pushing.http.patch(path, json={"enable": True})
    await settled(pushing, {"DELIVERED": 2})


async def test_an_endpoint_that_only_fails_is_disabled_after_its_time(
    pushing: World, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(500)
    settings: dict[str, Any] = {"breaker": {"disable_after_s": 100, "failures": 1000}}
    await push_to(pushing, endpoint, **settings, retry={"delays_s": [1]})
    await pushing.http.patch("/v2/channel/c/consumer/h", json={"max_retries": 500})
    await pushing.broadcast()
    await endpoint.wait_for(1)

    async def failing() -> Any:
        return (await pushing.http.get("/v2/channel/c/consumer/h")).json()["failing_since"]

    await until(pushing, failing)
    pushing.clock.advance(101)

    async def disabled() -> Any:
        pushing.clock.advance(5)
        return (await pushing.http.get("/v2/channel/c/consumer/h")).json()["disabled_reason"]

    assert "100 s" in await until(pushing, disabled)
    await settled(pushing, {"QUEUED": 1})  # nothing is lost when it is disabled


@pytest.mark.one_database
async def test_a_producer_cannot_replace_what_the_service_says(
    pushing: World, endpoint: Endpoint
) -> None:
    await push_to(pushing, endpoint)
    for name in ("Content-Type", "User-Agent", "X-Broker-Message-ID", "Webhook-Signature", "Host"):
        await pushing.broadcast(expect=400, **{"X-Broker-Metadata-Headers": name, name: "x"})


async def test_an_address_inside_is_refused_when_defined_and_when_called(
    pushing: World, endpoint: Endpoint
) -> None:
    refused = await pushing.consumer(
        "h", 400, callbackUrl="http://169.254.169.254/latest/meta-data"
    )
    assert "callbackUrl" in refused.text
    refused = await pushing.consumer("h", 400, callbackUrl="http://☃.example/")
    assert "IDNA 2008" in refused.text
    await push_to(pushing, endpoint)
    path = "/v2/channel/c/consumer/h"
    patched = await pushing.http.patch(path, json={"callback_url": "http://10.0.0.1/"})
    assert patched.status_code == 400
    patched = await pushing.http.patch(path, json={"callback_url": "http://a\u200db.example/"})
    assert (patched.status_code, "IDNA 2008" in patched.text) == (400, True)
    address = "http://0x0a000001/"
    await pushing.http.patch(path, json={"callback_url": address})

    async def known() -> bool:
        assert pushing.engine is not None
        served = pushing.engine.consumers.get("c/h")
        return served is not None and served.callback_url == address

    await until(pushing, known)
    await pushing.broadcast()

    async def noted() -> Any:
        job = (await counts(pushing)).get("QUEUED")
        return job and (await pushing.http.get("/metrics")).text.count('code_class="error"')

    await until(pushing, noted)
    assert endpoint.calls == []


@pytest.mark.one_database
async def test_settings_out_of_range_are_refused_with_their_field(world: World) -> None:
    path = "/v2/channel/c/consumer/k"
    for settings, field in [
        ({"concurrency": 0}, "concurrency"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"rate_per_s": -1}, "rate_per_s"),
        ({"retry": {"delays_s": []}}, "retry.delays_s"),
        ({"retry": {"unknown": 1}}, "retry.unknown"),
        ({"unknown": 1}, "settings"),
        ({"retry": {"kind": "linear"}}, "settings"),
    ]:
        response: httpx2.Response = await world.http.patch(path, json={"settings": settings})
        assert response.status_code == 400, settings
        assert response.json()["field"] == field


async def test_an_engine_that_stops_finishes_what_it_began(
    world: World, endpoint: Endpoint, clock: ManualClock
) -> None:
    endpoint.delay_s = 1.0
    await push_to(world, endpoint)
    for number in range(5):  # before there is a lane, so that all are called at once
        await world.broadcast(str(number))
    engine = PushEngine(world.runtime)
    task = asyncio.create_task(engine.run())

    async def called() -> bool:
        return endpoint.running == 5

    await until(world, called)
    engine.stop()
    async with asyncio.timeout(60):
        await task
    assert await counts(world) == {"DELIVERED": 5}


async def test_a_process_that_dies_in_a_call_leaves_the_job_to_others_and_counts_it(
    world: World, runtime: Runtime, endpoint: Endpoint
) -> None:
    endpoint.delay_s = 60
    await push_to(world, endpoint)
    task = asyncio.create_task(PushEngine(runtime).run())
    await world.broadcast()

    async def called() -> bool:
        return endpoint.running == 1

    await until(world, called)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await counts(world) == {"INFLIGHT": 1}
    await world.sweep(46)
    assert await counts(world) == {"QUEUED": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("120", 120.0),
        (" 5 ", 5.0),
        ("-5", None),
        ("soon", None),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("9" * 30, 3600.0),
        ("7200", 3600.0),
        ("Fri, 31 Dec 9999 23:59:59 -1200", 3600.0),
        ("99999999999 Jan 01 12:30", None),
        ("1 Jan 99999999999999999999 12:30", None),
        ("Thu, 99 Jan 1970 00:02:00 GMT", None),
        ("01 Jan 1970 00:02:00 +9999999999999", None),
        ("²", None),
        (",,,", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, expected: float | None) -> None:
    assert retry_after_s(text, 100.0) == expected


async def test_calls_seen_by_the_endpoint_are_counted(pushing: World, endpoint: Endpoint) -> None:
    seen: list[Call] = endpoint.calls
    await push_to(pushing, endpoint)
    await pushing.broadcast()
    await settled(pushing, {"DELIVERED": 1})
    assert len(seen) == 1
    text = (await pushing.http.get("/metrics")).text
    assert 'push_attempts_total{channel="c",consumer="h",code_class="2xx"} 1' in text
    assert 'jobs_queue_depth{channel="c",consumer="h",state="DELIVERED"} 1' in text
    assert 'jobs_end_to_end_seconds_count{channel="c",consumer="h"} 1' in text
