"""A service that is told to end waits for its calls, no longer than it may, and tells what failed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from headrace.jobs.config import Config, load_config
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.push.engine import PushEngine
from headrace.jobs.server import serve
from jobs_endpoint import Endpoint
from waiting import until

pytestmark = pytest.mark.one_database


PUSHED = """
[producers.p]
token = "pt"
[channels.c]
token = "ct"
[channels.c.consumers.h]
token = "ht"
type = "push"
callback_url = "{url}"
"""
PUBLISHER = {
    "X-Broker-Channel-Token": "ct",
    "X-Broker-Producer-ID": "p",
    "X-Broker-Producer-Token": "pt",
}


@asynccontextmanager
async def serving(config: Config) -> AsyncIterator[httpx2.AsyncClient]:
    """A service in this process, which SIGTERM ends."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(config, address.set_result))
    async with asyncio.timeout(20):
        async with httpx2.AsyncClient(base_url=await address) as http:
            yield http
        signal.raise_signal(signal.SIGTERM)
        await task


async def served_until_told(database_url: str, drain_s: float) -> None:
    """Serve until SIGTERM comes, which it does at once."""
    flags = {"database": database_url, "port": 0, "drain_seconds": drain_s}
    async with serving(load_config(None, flags)):
        pass


async def test_calls_in_progress_are_finished(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, closed = asyncio.Event(), asyncio.Event()
    shutdown, resign = uvicorn.Server.shutdown, Maintenance.resign
    happened: list[str] = []

    async def shut_down_and_tell(server: uvicorn.Server, sockets: Any = None) -> None:
        await shutdown(server, sockets=sockets)
        happened.append("no more requests")
        closed.set()

    async def take_longer_than_requests(_: PushEngine) -> None:
        await stopped.wait()
        await closed.wait()
        for _turn in range(10):
            await asyncio.sleep(0)
        happened.append("the last result is stored")

    async def resign_and_tell(maintenance: Maintenance) -> None:
        happened.append("the others may go on")
        await resign(maintenance)

    monkeypatch.setattr(uvicorn.Server, "shutdown", shut_down_and_tell)
    monkeypatch.setattr(PushEngine, "run", take_longer_than_requests)
    monkeypatch.setattr(PushEngine, "stop", lambda _: stopped.set())
    monkeypatch.setattr(Maintenance, "resign", resign_and_tell)
    await served_until_told(database_url, 10.0)
    assert happened == ["no more requests", "the last result is stored", "the others may go on"]


async def test_the_result_of_a_call_in_progress_is_stored(
    database_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.toml"
    async with Endpoint(delay_s=0.5) as endpoint:
        path.write_text(PUSHED.format(url=endpoint.url))
        flags = {"database": database_url, "port": 0, "allow_networks": ["127.0.0.0/8"]}
        config = load_config(path, flags)
        async with serving(config) as http:
            answer = await http.post("/channel/c/broadcast", content=b"1", headers=PUBLISHER)
            assert answer.status_code == 201, answer.text
            await until(lambda: endpoint.running == 1, "it is not called")
        assert len(endpoint.calls) == 1
        async with serving(config) as http:
            body = (await http.get("/v2/channel/c/consumer/h")).json()
        assert {state: n for state, n in body["jobs"].items() if n} == {"DELIVERED": 1}
        assert len(endpoint.calls) == 1


async def test_push_that_ends_at_once_cuts_no_request_off(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutdown = uvicorn.Server.shutdown
    forced: list[bool] = []

    async def shut_down_and_tell(server: uvicorn.Server, sockets: Any = None) -> None:
        await shutdown(server, sockets=sockets)
        forced.append(server.force_exit)

    monkeypatch.setattr(uvicorn.Server, "shutdown", shut_down_and_tell)
    await served_until_told(database_url, 10.0)
    assert forced == [False]


async def test_calls_that_take_longer_are_left(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = asyncio.Event()

    async def never_end(_: PushEngine) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    monkeypatch.setattr(PushEngine, "run", never_end)
    await served_until_told(database_url, 0.1)
    assert cancelled.is_set()


async def test_a_second_signal_ends_it_at_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutdown = uvicorn.Server.shutdown

    async def shut_down_and_ask_again(server: uvicorn.Server, sockets: Any = None) -> None:
        await shutdown(server, sockets=sockets)
        # Once the service waits for nothing but its calls.
        asyncio.get_running_loop().call_later(0.1, signal.raise_signal, signal.SIGTERM)

    async def never_end(_: PushEngine) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(uvicorn.Server, "shutdown", shut_down_and_ask_again)
    monkeypatch.setattr(PushEngine, "run", never_end)
    await served_until_told(database_url, 300.0)


async def test_push_that_fails_while_it_ends_ends_the_service_with_its_error(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, resigned = asyncio.Event(), asyncio.Event()
    resign = Maintenance.resign

    async def resign_and_tell(maintenance: Maintenance) -> None:
        await resign(maintenance)
        resigned.set()

    async def fail_at_the_end(_: PushEngine) -> None:
        await stopped.wait()
        raise LookupError("nobody thought of it")

    monkeypatch.setattr(PushEngine, "run", fail_at_the_end)
    monkeypatch.setattr(PushEngine, "stop", lambda _: stopped.set())
    monkeypatch.setattr(Maintenance, "resign", resign_and_tell)
    with pytest.raises(LookupError, match="nobody thought of it"):
        await served_until_told(database_url, 10.0)
    assert resigned.is_set(), "others have to wait until its lead is over"
