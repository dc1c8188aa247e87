"""The page about permissions: programs do their work as users who may do no more, on both servers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
import peers
import roles
from headrace import Connection
from headrace.client.events import Disconnected, Event
from headrace.errors import HeadraceError
from readers import pieces_of
from waiting import until


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def server_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(server_kind: str, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    found = roles.start_with_page(server_kind, tmp_path / "server")
    yield found
    found.stop()


def violations(server: peers.ServerProcess) -> list[str]:
    """What anybody was refused, in the server's words."""
    return [line for line in server.log_text().splitlines() if "Permissions Violation" in line]


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
        with pytest.raises(HeadraceError):
            await connection.jetstream().create_stream(name="MINE", subjects=["mine"])
    assert any("$JS.API.STREAM.CREATE.MINE" in line for line in violations(server))


async def test_a_password_is_changed_by_a_second_user_and_no_connection_is_lost(
    server_kind: str, tmp_path: Path
) -> None:
    _, both = [each.text for each in pieces_of(roles.PAGE) if each.language == "text"]
    both = both.replace("$SHOP_1", "one").replace("$SHOP_2", "two")
    lines = both.splitlines()
    directory = tmp_path / "server"
    directory.mkdir()

    def users(*names: str) -> str:
        return "\n".join(
            each
            for each in lines
            if "user: " not in each or any(f"user: {n}," in each for n in names)
        )

    if server_kind == "nats-server":
        server = peers.start_nats_server(directory, config=users("shop-1"))
        file = directory / "nats.conf"
        front = file.read_text().removesuffix(users("shop-1") + "\n")
    else:
        file, front = directory / "users.conf", ""
        file.write_text(users("shop-1"))
        server = peers.start_headrace(directory, flags=["-c", str(file)])
    lost: list[str] = []

    def at(user: str, password: str) -> headrace.client.connection.Connecting:
        def note(event: Event) -> None:
            if isinstance(event, Disconnected):
                lost.append(user)

        url = server.url.replace("nats://", f"nats://{user}:{password}@")
        return headrace.connect(url, on_event=note, reconnect=False)

    def reload(*names: str) -> None:
        file.write_text(front + users(*names) + "\n")
        server.process.send_signal(signal.SIGHUP)

    async def is_let_in() -> Connection | None:
        try:
            return await at("shop-2", "two")
        except HeadraceError:
            return None

    try:
        async with at("shop-1", "one") as old, at("shop-1", "one") as straggler:
            reload("shop-1", "shop-2")
            new = await until(is_let_in, "the second user is not taken", within=20)
            assert new is not None
            for connection in (old, new):
                await connection.publish("orders.1", b"1")
                await connection.flush()
            assert lost == []
            await old.close()
            reload("shop-2")
            await until(lambda: straggler.is_closed, "the old password is taken", within=20)
            await new.publish("orders.1", b"1")
            await new.flush()
            assert "shop-2" not in lost
            await new.close()
    finally:
        server.stop()
