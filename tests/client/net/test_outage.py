"""An outage is seen in the log: once as it begins, once while it lasts, once as it ends."""

from __future__ import annotations

import logging

import pytest

import chaos
import peers
from headrace.client import connect
from headrace.errors import ConnectFailedError
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "headrace.client"
    ]


async def test_an_outage_is_logged_as_it_begins_lasts_and_ends(
    reference_server: peers.ServerProcess,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.client.net.reconnect.STILL_WAITING_S", 0.05)
    caplog.set_level(logging.DEBUG, "headrace.client")
    server = reference_server
    async with (
        chaos.ChaosProxy(server.host, server.port, server.scheme) as proxy,
        connect(proxy.url, name="orders", reconnect_wait=0.005, reconnect_wait_max=0.01) as hurt,
    ):
        for _ in range(2):
            await proxy.go_away()
            await until(lambda: not hurt.is_connected)
            await until(lambda: "still being restored" in caplog.records[-1].getMessage())
            await proxy.come_back()
            await until(lambda: hurt.is_connected)
            assert str(hurt._session.outage) == "None"
    said = lines(caplog)
    assert [level for level, _ in said] == ["INFO", *["WARNING", "WARNING", "INFO"] * 2]
    url = proxy.url
    assert said[0][1] == f"connected to {url}"
    assert said[1][1].startswith(
        f"the connection 'orders' to {url} was lost, and is being restored: "
    )
    assert said[2][1].startswith(
        f"the connection 'orders' to {url} has been lost for 0 s, and is still"
    )
    assert said[3][1].startswith(f"connected to {url} again after 0.")


async def test_a_connection_that_is_given_up_is_logged_and_one_that_never_was_is_not(
    reference_server: peers.ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    server = reference_server
    async with chaos.ChaosProxy(server.host, server.port, server.scheme) as proxy:
        connection = await connect(proxy.url, max_reconnect_attempts=1, reconnect_wait=0.001)
        await proxy.go_away()
        await until(lambda: connection.is_closed)
        lost, over = lines(caplog)
        assert (lost[0], over[0]) == ("WARNING", "WARNING")
        assert "is over: given up after 1 attempts" in over[1]
        with pytest.raises(ConnectFailedError):
            await connect(proxy.url)
        assert len(lines(caplog)) == 2
        await proxy.come_back()
