"""The page about permissions: programs do their work as users who may do no more, on both servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
import peers
import roles


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    found = roles.start_with_page(request.param, tmp_path / "server")
    yield found
    found.stop()


def violations(server: peers.ServerProcess) -> list[str]:
    """What anybody was refused, in the server's words."""
    return [line for line in server.log_text().splitlines() if "Violation" in line]


async def test_a_publisher_worker_member_console_and_feed_need_no_more_than_the_page_says(
    server: peers.ServerProcess,
) -> None:
    async with headrace.connect(roles.url_of(server, roles.ADMIN)) as connection:
        await roles.prepare(connection.jetstream())
    await roles.publisher(roles.url_of(server, "publisher"))
    await roles.worker(roles.url_of(server, "worker"))
    await roles.member(roles.url_of(server, "member"))
    await roles.console(roles.url_of(server, "console"))
    await roles.feed(roles.url_of(server, "feed"), roles.url_of(server, roles.ADMIN))
    assert violations(server) == []


async def test_what_is_not_on_the_page_is_refused_and_seen_in_the_log(
    server: peers.ServerProcess,
) -> None:
    async with headrace.connect(roles.url_of(server, "publisher")) as connection:
        with pytest.raises(headrace.errors.HeadraceError):
            await connection.jetstream().create_stream(name="MINE", subjects=["mine"])
    assert any("$JS.API.STREAM.CREATE.MINE" in line for line in violations(server))
