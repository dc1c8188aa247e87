"""What accounts have: over the monitoring port, as a user of the system account, and without the right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import peers
from console_world import World
from headrace.client import connect
from headrace.console import ConsoleServer, Settings

CONF = """
accounts: {
  SYS: { users: [{user: sys, password: sys}] }
  A: { jetstream: enabled, users: [{user: a, password: a}] }
  B: { users: [{user: b, password: b}] }
}
system_account: SYS
no_auth_user: a
jetstream: { store_dir: "%s" }
"""


@pytest.fixture(params=["headrace", "nats-server"])
async def accounts(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[peers.ServerProcess]:
    start = peers.start_headrace if request.param == "headrace" else peers.start_nats_server
    file = tmp_path / "accounts.conf"
    file.write_text(CONF % (tmp_path / "store"))
    port, monitoring = peers.free_port(), peers.free_port()
    # -a, -p: a file would otherwise say where to listen
    flags = ("-c", str(file), "-a", "127.0.0.1", "-p", str(port), "-m", str(monitoring))
    process = start(tmp_path, flags=flags, port=port, jetstream=False)
    process.monitoring_port = monitoring
    yield process
    process.stop()


async def test_accounts_are_told_to_the_system_account_and_over_the_monitoring_port(
    accounts: peers.ServerProcess,
) -> None:
    host = f"{accounts.host}:{accounts.port}"
    monitoring = f"http://127.0.0.1:{accounts.monitoring_port}"
    async with (
        connect(accounts.url, user="a", password="a") as a,
        connect(accounts.url, user="b", password="b") as b,
    ):
        js = a.jetstream()
        await js.create_stream(name="S", subjects=("s",))
        await js.create_stream(name="T", subjects=("t",), storage="memory")
        await js.publish("s", b"x" * 1000)
        await b.subscribe("x")
        await b.flush()
        for user, settings in (("sys", {}), ("b", {"monitoring": monitoring})):
            async with _console(f"nats://{user}:{user}@{host}", settings) as world:
                rows = {each["name"]: each for each in (await world.get("/accounts"))["accounts"]}
                assert {"SYS", "A", "B", "$G"} <= rows.keys()
                assert (rows["A"]["streams"], rows["A"]["jetstream"]) == (2, True)
                assert rows["A"]["bytes"] >= 1000
                assert rows["A"]["connections"] == 1
                assert rows["A"]["in_bytes"] > 1000
                assert rows["B"]["connections"] == 1 + (user == "b")
                assert rows["B"]["subscriptions"] >= 1
                assert (rows["B"]["jetstream"], rows["B"]["streams"]) == (False, None)
        async with _console(f"nats://a:a@{host}", {}) as world:
            refused = await world.get("/accounts", 503)
            assert refused["message"].startswith("connections and accounts are shown to users of")
            own = await world.get("/account")
            assert (own["account"], own["streams"]) == ("A", 2)


class _console:
    """A console of this user."""

    def __init__(self, url: str, settings: dict[str, Any]) -> None:
        self._url, self._settings = url, settings

    async def __aenter__(self) -> World:
        import contextlib

        self._stack = contextlib.AsyncExitStack()
        connection = await self._stack.enter_async_context(connect(self._url))
        settings = Settings(port=0, **self._settings)
        console = await self._stack.enter_async_context(ConsoleServer(settings, connection))
        http = await self._stack.enter_async_context(
            httpx2.AsyncClient(base_url=console.url, verify=False)
        )
        return World(connection, connection.jetstream(), console, http)

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
