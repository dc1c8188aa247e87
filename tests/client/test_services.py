"""Services: what they answer, count and say of themselves; with nats-py's services, both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import nats
import nats.micro
import pytest
from nats.aio.client import Client
from nats.micro.request import Request
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

import peers
from headrace import ConfigurationError, InvalidSubjectError, NoRespondersError, ServiceError
from headrace.client import Connection, Message, connect
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


@pytest.fixture
async def other(reference_server: peers.ServerProcess) -> AsyncIterator[Client]:
    client = await nats.connect(reference_server.url)
    yield client
    await client.close()


def double(message: Message) -> bytes:
    return message.payload * 2


async def fail(message: Message) -> None:
    raise ServiceError(418, "a teapot") if message.payload else ValueError("inner")


async def answers(connection: Connection, subject: str, count: int) -> list[dict[str, Any]]:
    """So many answers to one question."""
    inbox = connection.new_inbox()
    async with await connection.subscribe(inbox) as subscription:
        await connection.publish(subject, reply=inbox)
        return [json.loads((await subscription.next(5)).payload) for _ in range(count)]


async def test_endpoints_answer_and_are_counted(connection: Connection) -> None:
    async with await connection.add_service("calc", version="1.0.0") as service:
        await service.add_endpoint("double", double)
        await service.add_endpoint("fail", fail, subject="fail.*")
        assert (await connection.request("double", b"21")).payload == b"2121"
        with pytest.raises(ServiceError, match=r"a teapot \(code 418\)"):
            await connection.request("fail.x", b"x")
        with pytest.raises(ServiceError, match=r"ValueError \(code 500\)"):
            await connection.request("fail.x")
        ok, failed = service.stats().endpoints
        assert (ok.num_requests, ok.num_errors, ok.last_error) == (1, 0, "")
        assert ok.processing_time == ok.average_processing_time > 0
        assert (failed.num_requests, failed.num_errors) == (2, 2)
        assert failed.last_error == "ValueError"  # its text stays here, as in the answer
        service.reset()
        assert [e.num_requests for e in service.stats().endpoints] == [0, 0]
    with pytest.raises(NoRespondersError):
        await connection.request("double")
    with pytest.raises(NoRespondersError):
        await connection.request("$SRV.PING.calc")
    with pytest.raises(ConfigurationError, match="was stopped"):
        await service.add_endpoint("again", double)
    await service.stop()


async def test_what_is_asked_of_all_of_one_kind_and_of_one(connection: Connection) -> None:
    meta = {"site": "mill"}
    async with (
        await connection.add_service("calc", version="1.2.3", metadata=meta) as first,
        await connection.add_service("calc", version="1.2.3", description="sums") as second,
        await connection.add_service("other", version="0.1.0-rc.1+b5") as third,
    ):
        await second.add_endpoint("double", double, metadata={"unit": "m"})
        for subject, expected in (
            ("$SRV.PING", {first.id, second.id, third.id}),
            ("$SRV.PING.calc", {first.id, second.id}),
            (f"$SRV.PING.calc.{first.id}", {first.id}),
        ):
            found = await answers(connection, subject, len(expected))
            assert {answer["id"] for answer in found} == expected
            assert {answer["type"] for answer in found} == {"io.nats.micro.v1.ping_response"}
        (info,) = await answers(connection, f"$SRV.INFO.calc.{second.id}", 1)
        assert info == {
            "type": "io.nats.micro.v1.info_response",
            "name": "calc",
            "id": second.id,
            "version": "1.2.3",
            "metadata": {},
            "description": "sums",
            "endpoints": [
                {
                    "name": "double",
                    "subject": "double",
                    "queue_group": "q",
                    "metadata": {"unit": "m"},
                }
            ],
        }
        (ping,) = await answers(connection, f"$SRV.PING.calc.{first.id}", 1)
        assert ping["metadata"] == meta
        await connection.publish("$SRV.PING", b"nobody asks")
        await connection.flush()


async def test_nats_py_reads_what_our_services_say(connection: Connection, other: Client) -> None:
    async with await connection.add_service("calc", version="1.0.0") as service:
        await service.add_endpoint("double", double)
        await service.add_endpoint("fail", fail)
        await connection.flush()
        assert (await other.request("double", b"4")).data == b"44"
        failed = await other.request("fail", b"x")
        assert failed.headers == {
            "Nats-Service-Error": "a teapot",
            "Nats-Service-Error-Code": "418",
        }

        async def said(verb: str) -> dict[str, Any]:
            answer = await other.request(f"$SRV.{verb}.calc")
            document: dict[str, Any] = json.loads(answer.data)
            return document

        assert ServicePing.from_dict(await said("PING")).id == service.id
        assert ServiceInfo.from_dict(await said("INFO")).endpoints[0].subject == "double"
        stats = ServiceStats.from_dict(await said("STATS"))
        assert [e.num_requests for e in stats.endpoints] == [1, 1]
        assert stats.endpoints[1].num_errors == 1


async def is_heard(connection: Connection, subject: str) -> bool:
    """Whether somebody listens: a flush of nats-py may return before the server has its subscription."""
    try:
        await connection.request(subject, b"a")
    except NoRespondersError:
        return False
    return True


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")  # nats-py's own
async def test_our_requests_reach_services_of_nats_py(
    connection: Connection, other: Client
) -> None:
    async def handler(request: Request) -> None:
        if not request.data:
            raise nats.micro.request.ServiceError("400", "empty")
        await request.respond(request.data * 3)

    service = await nats.micro.add_service(other, name="theirs", version="2.0.0")
    await service.add_endpoint(name="triple", handler=handler)
    await until(lambda: is_heard(connection, "triple"), "the service is not heard")
    assert (await connection.request("triple", b"a")).payload == b"aaa"
    with pytest.raises(ServiceError, match=r"empty \(code 400\)"):
        await connection.request("triple")
    (theirs,) = await answers(connection, "$SRV.INFO.theirs", 1)
    async with await connection.add_service("ours", version="2.0.0") as ours:
        await ours.add_endpoint("x", double)
        (said,) = await answers(connection, "$SRV.INFO.ours", 1)
        assert said.keys() == theirs.keys()
        assert said["endpoints"][0].keys() == theirs["endpoints"][0].keys()
        (their_stats,) = await answers(connection, "$SRV.STATS.theirs", 1)
        (our_stats,) = await answers(connection, "$SRV.STATS.ours", 1)
        assert our_stats.keys() == their_stats.keys()
        assert our_stats["endpoints"][0].keys() == their_stats["endpoints"][0].keys()
    await service.stop()


async def test_groups_prefix_subjects_and_hand_on_their_queue(connection: Connection) -> None:
    async with await connection.add_service("calc", version="1.0.0", queue="all") as service:
        outer = service.group("math")
        inner = outer.group("v2", queue="two")
        every = inner.group("each", queue=None)
        await outer.add_endpoint("double", double)
        await inner.add_endpoint("double", double, subject="twice")
        await every.add_endpoint("x", double)
        await every.add_endpoint("y", double, queue="own")
        assert [(e.subject, e.queue_group) for e in service.info().endpoints] == [
            ("math.double", "all"),
            ("math.v2.twice", "two"),
            ("math.v2.each.x", ""),
            ("math.v2.each.y", "own"),
        ]
        assert (await connection.request("math.v2.twice", b"1")).payload == b"11"


async def test_of_a_queue_one_instance_answers_and_without_one_each(
    connection: Connection,
) -> None:
    async with (
        await connection.add_service("calc", version="1.0.0") as first,
        await connection.add_service("calc", version="1.0.0") as second,
    ):
        for service in (first, second):
            await service.add_endpoint("one", double)
            await service.add_endpoint("each", double, queue=None)
        for _ in range(20):
            await connection.request("one", b"x")
        counts = [service.stats().endpoints[0].num_requests for service in (first, second)]
        assert sum(counts) == 20 and all(counts)
        await connection.request("each", b"x")

        def both() -> bool:
            return all(s.stats().endpoints[1].num_requests == 1 for s in (first, second))

        await until(both, "both instances were asked")


async def test_a_stop_answers_what_came_and_may_come_from_a_handler(
    connection: Connection,
) -> None:
    service = await connection.add_service("last", version="1.0.0")

    async def stop(message: Message) -> bytes:
        await service.stop()
        return b"stopped"

    await service.add_endpoint("stop", stop)
    waiting = asyncio.create_task(service.stopped())
    assert (await connection.request("stop")).payload == b"stopped"
    await asyncio.wait_for(waiting, 5)


async def test_a_service_goes_on_after_a_reconnect(
    reference_server: peers.ServerProcess, connection: Connection
) -> None:
    async with connect(reference_server.url, reconnect_wait=0.01) as serving:
        service = await serving.add_service("calc", version="1.0.0")
        await service.add_endpoint("again", double)
        await serving.flush()
        assert serving._session.link is not None
        serving._session.link.transport.abort()
        await until(lambda: serving.reconnects == 1, "it is connected again")
        await serving.flush()
        assert (await connection.request("again", b"x")).payload == b"xx"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"name": "a b"}, "service name 'a b': accepted are letters"),
        ({"version": "1"}, "version '1': accepted is a semantic version"),
        ({"queue": "a b"}, "a b"),
    ],
)
async def test_arguments_out_of_form_are_refused(
    connection: Connection, wrong: dict[str, Any], reason: str
) -> None:
    with pytest.raises((ConfigurationError, InvalidSubjectError), match=reason):
        await connection.add_service(**{"name": "calc", "version": "1.0.0", **wrong})
    async with await connection.add_service("calc", version="1.0.0") as service:
        with pytest.raises(ConfigurationError, match="endpoint name"):
            await service.add_endpoint("a.b", double)
        with pytest.raises(InvalidSubjectError):
            await service.add_endpoint("a", double, subject="a..b")
        with pytest.raises(ConfigurationError, match="handler"):
            await service.add_endpoint("a", None)  # type: ignore[arg-type]
        assert service.info().endpoints == []
