"""headrace service: services of ours and of nats-py are found, shown and measured, at both servers."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import nats
import nats.micro
import pytest

import peers
from headrace import Message, ServiceError, connect

Run = Callable[..., Any]


async def _refuse(message: Any) -> bytes:
    raise ServiceError(404, "no such city")


@pytest.fixture
async def weather(either_server: peers.ServerProcess) -> Any:
    """Two instances of a service of ours, and one of nats-py."""
    async with connect(either_server.url) as nc:
        for number in (1, 2):
            service = await nc.add_service(
                "weather", version="2.1.0", description="of today", metadata={"number": str(number)}
            )
            await service.add_endpoint("city", lambda message: b"sun", subject="weather.city")
            await service.add_endpoint("lost", _refuse, subject="weather.lost", queue=None)
        theirs = await nats.connect(either_server.url)
        calc = await nats.micro.add_service(theirs, name="calc", version="0.1.0")
        await calc.add_endpoint(name="double", handler=lambda request: request.respond(b"4"))
        await nc.flush()
        await theirs.flush()
        yield nc
        await calc.stop()
        await theirs.close()


async def test_services_are_listed_and_so_are_the_instances_of_one(
    at_server: Run, weather: Any
) -> None:
    listed = await asyncio.to_thread(at_server, "service", "ls", "--wait", "200ms")
    assert listed.status == 0, listed.err
    rows = [line.split() for line in listed.out.splitlines()]
    assert ["calc", "0.1.0", "1", "1"] in rows
    assert ["weather", "2.1.0", "2", "2", "of", "today"] in rows
    told = await asyncio.to_thread(at_server, "micro", "ls", "weather", "--wait", "200ms", "-j")
    assert [each["name"] for each in json.loads(told.out)] == ["weather"] * 2
    assert {each["metadata"]["number"] for each in json.loads(told.out)} == {"1", "2"}


async def test_info_shows_the_endpoints_of_each_instance_or_of_one(
    at_server: Run, weather: Any
) -> None:
    whole = await asyncio.to_thread(at_server, "service", "info", "weather", "--wait", "200ms")
    assert whole.out.count("weather.city") == 2
    assert "none: each instance answers" in whole.out
    told = json.loads((await asyncio.to_thread(at_server, "service", "ls", "calc", "--json")).out)
    one = await asyncio.to_thread(at_server, "service", "info", "calc", told[0]["id"])
    assert one.status == 0 and "double" in one.out and told[0]["id"] in one.out


async def test_stats_count_requests_and_errors_of_each_endpoint(
    at_server: Run, weather: Any
) -> None:
    for _ in range(3):
        assert (await weather.request("weather.city")).payload == b"sun"
    with pytest.raises(ServiceError):
        await weather.request("weather.lost")
    done = await asyncio.to_thread(
        at_server, "service", "stats", "weather", "--wait", "200ms", "-j"
    )
    counts = [
        (each["name"], each["num_requests"], each["num_errors"])
        for instance in json.loads(done.out)
        for each in instance["endpoints"]
    ]
    assert sum(requests for name, requests, _ in counts if name == "city") == 3
    # without a queue group each of the two instances got the request
    assert sum(errors for name, _, errors in counts if name == "lost") == 2
    table = await asyncio.to_thread(at_server, "service", "stats", "--wait", "200ms")
    assert table.status == 0 and "no such city" in table.out and "double" in table.out


async def test_ping_measures_each_instance(at_server: Run, weather: Any) -> None:
    done = await asyncio.to_thread(at_server, "service", "ping", "--wait", "200ms", "--json")
    told = json.loads(done.out)
    assert sorted(each["name"] for each in told) == ["calc", "weather", "weather"]
    assert all(0 < each["took_ms"] < 2000 for each in told)


def test_nobody_and_names_that_cannot_be_are_said(at_server: Run) -> None:
    empty = at_server("service", "ls", "--timeout", "1s")
    assert (empty.status, "no service answers" in empty.out) == (0, True)
    for words, said in [
        (("info", "weather"), "service weather: nobody answers"),
        (("stats",), "no service answers"),
        (("ping", "a.b"), "a name has no dots"),
        (("serve", "a b"), "service name 'a b'"),
        (("serve", "a", "--version", "one"), "a semantic version"),
        (("serve", "a", "x", "--fail", "y"), "give one kind of answer"),
    ]:
        done = at_server("service", *words, "--timeout", "1s")
        assert done.status != 0 and said in done.err, done
        assert "Traceback" not in done.err


async def test_what_is_not_a_service_is_left_out_and_said(
    at_server: Run, either_server: peers.ServerProcess
) -> None:
    async with connect(either_server.url) as nc:
        for number, said in enumerate([b"hello", b"[" * 100_000, b'{"name": 7}']):

            async def answer(message: Message, said: bytes = said) -> None:
                await message.respond(said)

            stranger = await nc.subscribe("$SRV.INFO", callback=answer)
            await nc.flush()
            done = await asyncio.to_thread(at_server, "service", "ls", "--wait", "100ms")
            assert done.status == 0, (number, done)
            assert "is not about a service" in done.err and "Traceback" not in done.err
            await stranger.unsubscribe()
            await nc.flush()


@pytest.fixture
def served(either_server: peers.ServerProcess) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start ``service serve``, and wait until it answers."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "service", "serve", *words, "-s", either_server.url],
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "answers on" in said, said + process.stderr.read()
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


async def test_serve_answers_until_ctrl_c(
    either_server: peers.ServerProcess, served: Callable[..., subprocess.Popen[str]]
) -> None:
    process = await asyncio.to_thread(served, "shout", "{{Request}}!", "--endpoint", "it")
    failing = await asyncio.to_thread(served, "broken", "--fail", "no more")
    unknown = await asyncio.to_thread(served, "odd", "--command", "headrace-is-not-a-program")
    async with connect(either_server.url) as nc:
        assert (await nc.request("shout.it", b"hey")).payload == b"hey!"
        with pytest.raises(ServiceError, match="no more"):
            await nc.request("broken.echo")
        with pytest.raises(ServiceError, match="cannot run"):
            await nc.request("odd.echo")
    for each in (process, failing, unknown):
        each.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(each.wait, 10) == 130
        assert each.stderr is not None
        assert "Traceback" not in each.stderr.read()
