"""Small pages over HTTP (`headrace.web.pages`)."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
from collections.abc import AsyncIterator
from urllib.parse import SplitResult

import pytest

from headrace.web import pages
from headrace.web.connections import ConnectionLimits
from headrace.web.pages import Page, PageServer, PageThread, plain
from late_comers import TURNS, is_hung_up_on
from waiting import until


@contextlib.asynccontextmanager
async def serving(server: PageServer) -> AsyncIterator[int]:
    await server.listen("127.0.0.1", 0)
    try:
        yield server.port
    finally:
        await server.close()


async def ask(port: int, said: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


async def hello(url: SplitResult) -> Page:
    return plain(200, f"{url.path} {url.query}\n")


def at_once(url: SplitResult) -> Page:
    return plain(200, f"{url.path} {url.query}\n")


@pytest.mark.parametrize("answer", [hello, at_once])
async def test_a_page_is_answered_at_once_or_later(answer: object) -> None:
    async with serving(PageServer(answer)) as port:  # type: ignore[arg-type]
        got = await ask(port, b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        assert got.endswith(b"\r\n\r\n/a b\n")
        got = await ask(port, b"HEAD /a?b HTTP/1.1\r\n\r\n")
        assert b"Content-Length: 5\r\n" in got
        assert got.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / SMTP/1.1\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 431),
    ],
)
async def test_bad_requests_are_told_what_is_accepted(said: bytes, status: int) -> None:
    async with serving(PageServer(at_once)) as port:
        assert (await ask(port, said)).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("turns", TURNS)
async def test_whoever_is_accepted_while_a_server_ends_is_hung_up_on(turns: int) -> None:
    server = await PageServer(at_once).listen("127.0.0.1", 0)
    assert await is_hung_up_on(server.port, turns, server.close)


async def test_a_page_that_fails_is_a_500_and_told_to_the_loop() -> None:
    def fails(url: SplitResult) -> Page:
        raise RuntimeError("no numbers")

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, c: told.append(c["exception"]))
    async with serving(PageServer(fails)) as port:
        answer = await ask(port, b"GET / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"no numbers" not in answer
    assert [str(error) for error in told] == ["no numbers"]


async def test_a_silent_connection_makes_room_for_one_that_asks() -> None:
    async with serving(PageServer(at_once, ConnectionLimits(4))) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        assert b"200 OK" in await ask(port, b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("answer", [hello, at_once])
async def test_who_closes_after_the_answer_leaves_nothing_behind(
    answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that has closed its own side already: it would be kept until the answer has had its time."""
    monkeypatch.setattr(pages, "ANSWER_S", 600.0)
    server = PageServer(answer)  # type: ignore[arg-type]
    async with serving(server) as port:
        for half_closed in (False, True) * 100:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            if half_closed:
                writer.write_eof()
            assert b"200 OK" in await reader.read()
            writer.close()
            await writer.wait_closed()
        await until(lambda: len(server.waiting) == 0)
        assert server.answering == 0


async def test_a_request_that_never_ends_is_cut() -> None:
    async with serving(PageServer(at_once, ConnectionLimits(4, head_s=0.05))) as port:
        with contextlib.suppress(ConnectionError):
            assert await ask(port, b"GET /varz") == b""


async def test_closing_waits_until_every_connection_has_ended() -> None:
    """Also where there were none at some time before."""
    server = PageServer(at_once)
    async with serving(server) as port:
        assert b"200 OK" in await ask(port, b"GET / HTTP/1.1\r\n\r\n")
        open_ = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        await until(lambda: len(server.waiting) == 5)
    assert server._open == 0
    for _, writer in open_:
        writer.close()


async def test_closing_ends_what_is_in_progress() -> None:
    asked = asyncio.Event()

    async def never(url: SplitResult) -> Page:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(PageServer(never)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await asked.wait()
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


def test_a_program_without_a_loop_serves_from_a_thread() -> None:
    served = PageThread(at_once, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/x?y", timeout=10) as answer:
            assert answer.read() == b"/x y\n"
        with pytest.raises(OSError, match=r"[Aa]ddress"):
            PageThread(at_once, "127.0.0.1", served.port)
    finally:
        served.close()
