"""One call: bounded, kept alive, never redirected."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from headrace.clock import ManualClock
from headrace.jobs import limits
from headrace.jobs.push.guard import Guard, RefusedAddressError
from headrace.jobs.push.sender import CallError, EndpointAnswer, Sender
from jobs_endpoint import Call, Endpoint, answer
from waiting import elapse


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    made = Sender(Guard(["127.0.0.0/8"]), ManualClock())
    yield made
    made.close()


async def post(sender: Sender, endpoint: Endpoint, body: bytes = b"hello") -> EndpointAnswer:
    return await sender.post(endpoint.url, {"X-A": "b"}, body, 2.0)


async def test_a_call_says_what_it_should_and_gets_the_answer(
    sender: Sender, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(202, b"thanks", Retry_After="7")
    assert await post(sender, endpoint) == EndpointAnswer(202, b"thanks", "7")
    call = endpoint.calls[0]
    assert (call.target, call.body, call.headers["x-a"]) == ("/hook?x=1", b"hello", "b")
    assert call.headers["host"] == f"127.0.0.1:{endpoint.port}"


async def test_a_connection_is_used_again_and_replaced_when_it_was_closed(
    sender: Sender, endpoint: Endpoint
) -> None:
    for _ in range(3):
        await post(sender, endpoint)
    assert endpoint.connections == 1
    endpoint.cut()
    await asyncio.sleep(0)
    await post(sender, endpoint)
    assert (endpoint.connections, len(endpoint.calls)) == (2, 4)


async def test_a_request_leaves_once_when_the_endpoint_reads_it_and_hangs_up(
    sender: Sender, endpoint: Endpoint
) -> None:
    await asyncio.gather(*(post(sender, endpoint) for _ in range(5)))  # five kept alive
    assert endpoint.connections == 5
    arrived = len(endpoint.calls)

    def hang_up(call: Call) -> bytes:
        endpoint.cut()
        return b""

    endpoint.respond = hang_up
    with pytest.raises(CallError):
        await post(sender, endpoint)
    assert len(endpoint.calls) == arrived + 1


async def test_a_connection_closed_while_idle_is_seen_before_the_loop_tells(
    sender: Sender,
) -> None:
    """The endpoint's end closes in another thread, so that no turn of the loop comes between."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        calls: list[bytes] = []

        def serve() -> socket.socket:
            connection, _ = server.accept()
            calls.append(connection.recv(65536))
            connection.sendall(answer())
            return connection

        url = f"http://127.0.0.1:{port}/hook"
        first = asyncio.create_task(asyncio.to_thread(serve))
        await sender.post(url, {}, b"1", 2.0)
        kept = await first
        kept.close()  # and at once, without a turn of the loop:
        second = asyncio.create_task(asyncio.to_thread(serve))
        assert (await sender.post(url, {}, b"2", 2.0)).status == 200
        (await second).close()
    assert len(calls) == 2


async def test_the_endpoints_own_idle_time_is_kept(endpoint: Endpoint) -> None:
    clock = ManualClock()
    sender = Sender(Guard(["127.0.0.0/8"]), clock)
    endpoint.respond = lambda call: answer(Keep_Alive="timeout=5, max=100")
    for pause_s, connections in ((0, 1), (3.9, 1), (4.1, 2)):
        clock.advance(pause_s)
        await post(sender, endpoint)
        assert endpoint.connections == connections
    sender.close()


async def test_a_connection_is_not_used_again_when_the_endpoint_says_so(
    sender: Sender, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(Connection="close")
    await post(sender, endpoint)
    await post(sender, endpoint)
    assert endpoint.connections == 2


async def test_redirects_are_not_followed(sender: Sender, endpoint: Endpoint) -> None:
    endpoint.respond = lambda call: answer(302, Location="http://10.0.0.1/")
    assert (await post(sender, endpoint)).status == 302
    assert len(endpoint.calls) == 1


async def test_a_long_answer_is_cut_and_its_connection_closed(
    sender: Sender, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(200, b"x" * (limits.RESPONSE_BYTES_MAX * 3))
    found = await post(sender, endpoint)
    assert (found.status, len(found.body)) == (200, limits.RESPONSE_BYTES_MAX)
    await post(sender, endpoint)
    assert endpoint.connections == 2


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 20000,
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n",
    ],
)
async def test_what_is_no_answer_is_an_error(
    endpoint: Endpoint, sender: Sender, raw: bytes
) -> None:
    endpoint.respond = lambda call: raw
    call = asyncio.create_task(post(sender, endpoint))
    await endpoint.wait_for(1)
    await elapse(0.01, "the answer is under way")
    endpoint.cut()
    with pytest.raises(CallError):
        await call


async def test_informational_answers_are_passed_over(sender: Sender, endpoint: Endpoint) -> None:
    endpoint.respond = lambda call: b"HTTP/1.1 100 Continue\r\n\r\n" + answer(204)
    assert (await post(sender, endpoint)).status == 204


async def test_an_answer_that_changes_the_protocol_is_the_answer(
    sender: Sender, endpoint: Endpoint
) -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    for rest in (b"", b"and more"):
        endpoint.respond = lambda call, rest=rest: head + rest  # type: ignore[misc]
        assert (await post(sender, endpoint)).status == 101
    assert endpoint.connections == 2


async def test_an_answer_without_a_length_ends_with_the_connection(
    sender: Sender, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: b"HTTP/1.1 200 OK\r\n\r\npart"
    call = asyncio.create_task(post(sender, endpoint))
    await endpoint.wait_for(1)
    await elapse(0.01, "the answer is under way")
    endpoint.cut()
    assert (await call).body == b"part"


async def test_the_whole_call_has_one_time_limit(sender: Sender, endpoint: Endpoint) -> None:
    endpoint.delay_s = 5
    with pytest.raises(TimeoutError):
        await sender.post(endpoint.url, {}, b"x", 0.05)


async def test_nobody_listening_is_an_error(sender: Sender, free_port: int) -> None:
    with pytest.raises(CallError, match="no connection"):
        await sender.post(f"http://127.0.0.1:{free_port}/", {}, b"x", 2.0)


async def test_no_failure_tells_the_address_of_a_name(free_port: int) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    sender = Sender(Guard(["127.0.0.0/8"], resolve=resolve), ManualClock())
    for scheme in ("http", "https"):
        with pytest.raises(CallError) as failed:
            await sender.post(f"{scheme}://shop.example:{free_port}/", {}, b"x", 2.0)
        assert str(failed.value) == "no connection to shop.example: Connection refused"


async def test_an_address_not_allowed_is_never_connected_to(endpoint: Endpoint) -> None:
    strict = Sender(Guard(), ManualClock())
    with pytest.raises(RefusedAddressError):
        await strict.post(endpoint.url, {}, b"x", 2.0)
    assert endpoint.connections == 0


async def test_a_header_cannot_break_out(sender: Sender, endpoint: Endpoint) -> None:
    for value in ("b\r\nX-C: d", "b\nX-C: d", "b\0", "b\x7f", "b\ud800"):
        with pytest.raises(CallError, match=r"the header X-A has .*, which HTTP cannot carry"):
            await sender.post(endpoint.url, {"X-A": value}, b"x", 2.0)
    for name in ("", "X A", "X:A", "X\0", "X\r\nA", "\u00e9"):
        with pytest.raises(CallError, match="cannot be the name of a header"):
            await sender.post(endpoint.url, {name: "b"}, b"x", 2.0)
    with pytest.raises(CallError, match="lone surrogate"):
        await sender.post(endpoint.url + "\ud800", {}, b"x", 2.0)
    assert endpoint.calls == []
    await sender.post(endpoint.url + "&y=a b\u00e9", {}, b"x", 2.0)
    assert endpoint.calls[0].target == "/hook?x=1&y=a%20b%C3%A9"


async def test_above_the_limit_the_connection_that_was_idle_longest_is_closed() -> None:
    """Also while another endpoint's only connection is in use, which had been idle before."""
    sender = Sender(Guard(["127.0.0.0/8"]), ManualClock(), idle_max=2)
    async with Endpoint() as busy, Endpoint() as old, Endpoint() as new:
        await post(sender, busy)
        busy.respond = lambda call: b""
        waiting = asyncio.create_task(post(sender, busy))
        await busy.wait_for(2)
        await post(sender, old)
        answers = await asyncio.gather(*(post(sender, new) for _ in range(2)))
        assert [answer.status for answer in answers] == [200, 200]
        for endpoint, connections in ((new, 2), (old, 2)):
            await post(sender, endpoint)
            assert endpoint.connections == connections
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert busy.connections == 1
    sender.close()
