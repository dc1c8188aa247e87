from __future__ import annotations

import pytest

import chaos
import peers
from headrace.client import Connection, connect
from headrace.client.events import ErrorEvent, Event
from headrace.errors import ConnectionClosedError
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


class Raising:
    """Works over a connection, and has a mistake."""

    def connection_lost(self) -> None:
        raise ValueError("lost")

    def connection_restored(self) -> None:
        raise ValueError("restored")

    def connection_closed(self, reason: Exception) -> None:
        raise ValueError("closed")


class Noting:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def connection_lost(self) -> None:
        self.heard.append("lost")

    def connection_restored(self) -> None:
        self.heard.append("restored")

    def connection_closed(self, reason: Exception) -> None:
        self.heard.append("closed")


async def test_who_raises_when_it_is_told_of_an_outage_ends_neither_it_nor_the_others(
    reference_server: peers.ServerProcess,
) -> None:
    server, seen = reference_server, list[Event]()
    first, last = Raising(), Noting()
    async with (
        chaos.ChaosProxy(server.host, server.port, server.scheme) as proxy,
        connect(
            proxy.url, on_event=seen.append, reconnect_wait=0.005, reconnect_wait_max=0.01
        ) as hurt,
    ):
        hurt._session.observers |= {first: None, last: None}
        await proxy.go_away()
        await until(lambda: not hurt.is_connected)
        await proxy.come_back()
        await until(lambda: hurt.is_connected)
        await hurt.flush()
    assert last.heard == ["lost", "restored", "closed"]
    told = [str(each.error) for each in seen if isinstance(each, ErrorEvent)]
    assert told == ["lost", "restored", "closed"]


async def test_where_a_link_cannot_be_taken_everything_that_waits_fails(
    reference_server: peers.ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = reference_server
    async with chaos.ChaosProxy(server.host, server.port, server.scheme) as proxy:
        hurt: Connection = await connect(proxy.url, reconnect_wait=0.005, reconnect_wait_max=0.01)
        observer = Noting()
        hurt._session.observers[observer] = None

        def commands() -> bytes:
            raise ValueError("a mistake")

        monkeypatch.setattr(hurt._session.routes, "commands", commands)
        await proxy.go_away()
        await until(lambda: not hurt.is_connected)
        await proxy.come_back()
        await until(lambda: hurt.is_closed)
        assert observer.heard == ["lost", "closed"]
        with pytest.raises(ConnectionClosedError, match="a mistake"):
            await hurt.flush()
