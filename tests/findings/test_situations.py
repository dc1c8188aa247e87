"""What stands still is told by every tool alike, until its advice was followed; what works is told by none.

Clients and servers are real, and patience is short. How long each tool takes with the patience that users
have, ``make drill`` measures.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import peers
from findings.situations import SITUATIONS, Situation, Work, at_work, leave_a_watch
from headrace import Broker
from headrace.client import JetStream, connect
from headrace.console import ConsoleServer, Settings
from headrace.doctor import look_at_all
from headrace.findings.finding import Findings
from portions import play_one_way
from waiting import until

pytestmark = pytest.mark.timeout(180)

Told = set[tuple[str, str, str]]
"""Findings by name, severity and what they are of."""

QUICK_S = 0.5


class Tools:
    """All that tell of findings."""

    def __init__(self, js: JetStream, console: ConsoleServer, broker: str | None) -> None:
        self._js, self._console, self._broker = js, console, broker
        self._http = httpx2.AsyncClient(verify=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def told(self) -> dict[str, Told]:
        """What each tells now."""
        findings = Findings()
        await look_at_all(findings, self._js)
        await self._console.sources.watcher.refresh()
        alerts = (await self._http.get(f"{self._console.url}/api/alerts")).json()["alerts"]
        told = {
            "doctor": _of_documents(findings.document()),
            "console alerts": _of_documents(alerts),
            "console metrics": await self._page(self._console.url, "headrace_console_finding"),
        }
        if self._broker is not None:
            told["broker metrics"] = await self._page(self._broker, "headrace_finding")
        return told

    async def _page(self, url: str, metric: str) -> Told:
        page = (await self._http.get(f"{url}/metrics")).text
        shown = (
            dict(re.findall(r'(\w+)="([^"]*)"', line))
            for line in page.splitlines()
            if line.startswith(f"{metric}{{")
        )
        return {(each["finding"], each["severity"], each["what"]) for each in shown}


def _of_documents(documents: list[dict[str, Any]]) -> Told:
    return {
        (each["name"], each["grade"], each["what"]) for each in documents if each["grade"] != "ok"
    }


SERVERS = ["headrace", pytest.param("nats-server", marks=pytest.mark.peer)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Half of them are played on either server, and ``make test-all`` plays all on both."""
    play_one_way(metafunc, "world", SERVERS)


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Work, Tools]]:
    """A server with a console; our broker is in this process, so that its patience can be hurried up, too."""
    async with contextlib.AsyncExitStack() as stack:
        broker = None
        if request.param == "headrace":
            running = Broker(store_dir=tmp_path, port=0, monitor_port=0)
            await stack.enter_async_context(running)
            url, broker = running.client_url, running.monitor_url
        else:
            server = peers.start_nats_server(tmp_path)
            stack.callback(server.stop)
            url = server.url
        connection = await stack.enter_async_context(connect(url))
        seeing = await stack.enter_async_context(connect(url))
        console = ConsoleServer(Settings(port=0), seeing)
        await stack.enter_async_context(console)
        tools = Tools(seeing.jetstream(), console, broker)
        stack.push_async_callback(tools.close)
        yield Work(connection.jetstream(), url, stack, ack_wait=QUICK_S), tools


def hurry(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let everybody be so patient, who judges."""
    monkeypatch.setattr("headrace.findings.consumers.LEFT_S", seconds)
    monkeypatch.setattr("headrace.findings.consumers.IDLE_S", seconds)
    monkeypatch.setattr("headrace.doctor.AWAY_S", seconds)
    monkeypatch.setattr("headrace.console.alerts.GROUPS_EVERY_S", 0.0)


@pytest.mark.parametrize("name", list(SITUATIONS))
async def test_what_stands_still_is_told_by_all_alike_until_its_advice_was_followed(
    world: tuple[Work, Tools], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, tools = world
    situation = SITUATIONS[name]
    hurry(monkeypatch, QUICK_S)
    await situation.make(work)
    told: dict[str, Told] = {}

    async def is_told() -> bool:
        nonlocal told
        told = await tools.told()
        return all(_names(situation, tool, each) for tool, each in told.items())

    await until(is_told, f"not all tell it: {told}", within=60.0)
    client, *others = (each for tool, each in told.items() if tool != "broker metrics")
    assert all(each == client for each in others)
    assert told.get("broker metrics", client) <= client
    await situation.mend(work)

    async def is_gone() -> bool:
        nonlocal told
        told = await tools.told()
        return not any(
            finding == situation.finding and what == situation.what
            for each in told.values()
            for finding, _, what in each
        )

    await until(is_gone, "it is told though its advice was followed", within=60.0)


def _names(situation: Situation, tool: str, told: Told) -> bool:
    if tool == "broker metrics" and not situation.by_broker:
        return True
    return (situation.finding, "problem", situation.what) in told


async def test_what_removes_itself_is_no_alarm(
    world: tuple[Work, Tools], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, tools = world
    hurry(monkeypatch, 0.0)
    await leave_a_watch(work)
    (left,) = [each async for each in work.js.consumers("KV_LEFT")]
    assert left.num_pending or left.num_ack_pending
    assert not any((await tools.told()).values())


async def test_a_busy_system_of_everything_shows_none(
    world: tuple[Work, Tools], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, tools = world
    hurry(monkeypatch, 5.0)
    async with at_work(work) as store:
        for _ in range(3):
            await store()
            assert not any((await tools.told()).values())
