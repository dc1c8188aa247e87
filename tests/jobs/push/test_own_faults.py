"""What this machine cannot do is no attempt of the endpoint's: the job goes back, and it is told where."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.clock import ManualClock
from headrace.jobs.push.engine import PushEngine
from headrace.jobs.push.guard import Guard, OwnMachineError, ResolveError, own_fault
from headrace.jobs.push.sender import Sender
from headrace.jobs.service.push.results import PushNotes
from jobs_endpoint import Endpoint
from jobs_world import World
from waiting import until


@contextmanager
def no_descriptors() -> Iterator[None]:
    """No file can be opened by this process meanwhile."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept: list[int] = []
    first = os.open(os.devnull, os.O_RDONLY)
    kept.append(first)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(first, 16), limits[1]))
    try:
        while True:
            try:
                kept.append(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                assert error.errno == errno.EMFILE
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in kept:
            os.close(each)


def fails_for(monkeypatch: pytest.MonkeyPatch, names: set[str], number: int) -> None:
    """Let the name service fail for these names, and know no others."""

    async def getaddrinfo(host: str, port: int, **named: Any) -> list[Any]:
        if host in names:
            raise socket.gaierror(number, "failed")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


@pytest.mark.one_database
async def test_a_call_for_which_no_descriptor_is_left_is_no_attempt(world: World) -> None:
    async with Endpoint() as endpoint:
        await world.consumer("h", type="push", callbackUrl=endpoint.url, token="ht")
        settings = {"breaker": {"failures": 1}}
        path = "/v2/channel/c/consumer/h"
        assert (await world.http.patch(path, json={"settings": settings})).status_code == 200
        engine = PushEngine(world.runtime)
        task = asyncio.create_task(engine.run())
        try:
            await until(lambda: "c/h" in engine.consumers, "it is served")
            parts, part = world.runtime.parts, "calls of push c/h"

            async def is_told() -> bool:
                return "calls of push c/h" in parts.failing

            with no_descriptors():
                await world.broadcast("hello", X_Broker_Message_ID="m")
                await until(lambda: part in parts.failing, "it is told as a failing part")
                assert "Too many open files" in parts.failing[part].reason
            world.clock.advance(5)
            world.runtime.waiters.ring(())
            call = (await endpoint.wait_for(1))[0]
            assert (call.body, call.headers["x-broker-attempt"]) == (b"hello", "1")

            jobs = (await world.http.get("/channel/c/message/m")).json()["Jobs"]
            (number,) = [job["ID"] for job in jobs if "/consumer/h/" in job["JobURL"]]
            await until(lambda: is_delivered(world, number), "it is delivered")
            assert not parts.failing
        finally:
            engine.stop()
            await task
        detail = await world.job(number, "h")
        assert [one["status"] for one in detail["attempts"]] == [200]
        assert detail["retries"] == 0


async def is_delivered(world: World, job: str) -> bool:
    return await world.state(job, "h") == "DELIVERED"


@pytest.mark.one_database
@pytest.mark.parametrize("fault", [MemoryError(), OSError(errno.ENOSPC, "full")])
async def test_a_result_that_cannot_be_stored_for_our_own_fault_is_stored_later(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    database = world.runtime.database
    write_together, faults = database.write_together, [fault]

    async def write(work: Any, item: Any, /, weight: int = 1) -> Any:
        if isinstance(item, PushNotes) and faults:
            raise faults.pop()
        return await write_together(work, item, weight)

    monkeypatch.setattr(database, "write_together", write)
    async with Endpoint() as endpoint:
        await world.consumer("h", type="push", callbackUrl=endpoint.url, token="ht")
        engine = PushEngine(world.runtime)
        task = asyncio.create_task(engine.run())
        try:
            await world.broadcast("hello", X_Broker_Message_ID="m")
            await until(lambda: "push c/h" in world.runtime.parts.failing, "it is told")
            world.clock.advance(5)
            world.runtime.waiters.ring(())
            jobs = (await world.http.get("/channel/c/message/m")).json()["Jobs"]
            (number,) = [job["ID"] for job in jobs if "/consumer/h/" in job["JobURL"]]
            await until(lambda: is_delivered(world, number), "it is stored")
            assert len(endpoint.calls) == 1
        finally:
            engine.stop()
            await task


@pytest.mark.parametrize(
    "fault",
    [MemoryError(), *(OSError(n, "x") for n in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS))],
)
async def test_memory_and_files_that_are_used_up_are_our_own_fault(fault: Exception) -> None:
    own = own_fault(fault)
    assert own is not None
    assert own_fault(own) is own
    for other in (ConnectionRefusedError(errno.ECONNREFUSED, "x"), TimeoutError(), ValueError()):
        assert own_fault(other) is None


@pytest.mark.parametrize("tls", [False, True])
async def test_a_connection_for_which_no_descriptor_is_left_is_our_own_fault(tls: bool) -> None:
    sender = Sender(Guard(["127.0.0.0/8"]), ManualClock())
    async with Endpoint() as endpoint:
        url = endpoint.url.replace("http:", "https:") if tls else endpoint.url
        with no_descriptors(), pytest.raises(OwnMachineError, match="Too many open files"):
            await sender.post(url, {}, b"x", 5.0)
        with no_descriptors(), pytest.raises(OwnMachineError):
            await sender.post(url.replace("127.0.0.1", "localhost"), {}, b"x", 5.0)
    sender.close()


async def test_a_name_service_that_fails_for_every_name_is_our_own_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = Sender(Guard(), ManualClock())
    fails_for(monkeypatch, {"shop.example", "invalid."}, socket.EAI_AGAIN)
    with pytest.raises(OwnMachineError, match="name service"):
        await sender.post("http://shop.example/", {}, b"x", 5.0)


async def test_a_name_whose_own_servers_fail_is_the_endpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = Sender(Guard(), ManualClock())
    fails_for(monkeypatch, {"shop.example"}, socket.EAI_AGAIN)
    with pytest.raises(ResolveError, match=r"shop\.example"):
        await sender.post("http://shop.example/", {}, b"x", 5.0)


async def test_a_name_service_that_is_silent_is_our_own_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = {"shop.example", "invalid."}

    async def getaddrinfo(host: str, port: int, **named: Any) -> list[Any]:
        if host in silent:
            await asyncio.Event().wait()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    sender = Sender(Guard(), ManualClock())
    with pytest.raises(OwnMachineError, match="does not answer"):
        await sender.post("http://shop.example/", {}, b"x", 0.01)
    silent.remove("invalid.")
    with pytest.raises(TimeoutError):
        await sender.post("http://shop.example/", {}, b"x", 0.01)
